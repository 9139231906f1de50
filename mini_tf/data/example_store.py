"""Labelled examples as ids: a store of what is read, and beside every id what is asked there. Cached by content like any text."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from mini_tf.data import sides
from mini_tf.data.examples import Reader, find_tables
from mini_tf.data.formats.documents import Document
from mini_tf.data.formats.sources import Source
from mini_tf.data.forms import FORMS, Example
from mini_tf.data.labels import Labels, labels_of
from mini_tf.data.raw_text import hash_of, learn_tokenizer, reading_of, replaced
from mini_tf.data.sides import Sides
from mini_tf.data.split import Side, hash_text
from mini_tf.data.token_store import Say, TokenStore, Writer, batches, loaded, open_store
from mini_tf.data.tokenization.coverage import Coverage
from mini_tf.data.tokenization.tokenizer import Tokenizer, Vocabulary
from mini_tf.recipe import sections
from mini_tf.system.cache import cached
from mini_tf.system.errors import DataFault

FORMAT = 2
RAW = ".examples.jsonl"
LABELS = ".labels"


@dataclass(frozen=True, eq=False)
class ExampleStore:
    """tokens: a document an example; labels (N,) float32: what is asked at each of its ids, NaN = nothing.

    raw: the examples as they were written, a JSON list [texts, answers, further] a line; None of those that stand in memory alone.
    """

    tokens: TokenStore
    labels: np.ndarray
    raw: Path | None
    form: str

    def examples(self) -> Iterator[Example]:
        """The examples as they were written, in order; counted from 1, since the file that they came from may have another name by now."""
        assert self.raw is not None
        with self.raw.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                texts, answers, further = json.loads(line)
                yield Example(texts, answers, f"example {number}", tuple(further))

    def known_by(self) -> set[int]:
        """What the examples are known by when they are divided, as hashes."""
        return {hash_text(FORMS[self.form].known_by(one)) for one in self.examples()}

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def n_documents(self) -> int:
        """Examples."""
        return self.tokens.n_documents

    @property
    def vocabulary(self) -> Vocabulary:
        return self.tokens.vocabulary

    @property
    def raw_bytes(self) -> int:
        """UTF-8 bytes of the texts."""
        return self.tokens.raw_bytes

    @property
    def n_asked(self) -> int:
        """Places where something is asked; the separator that closes a conversation is one, and has no label of its own here."""
        return int((~np.isnan(self.labels)).sum()) + FORMS[self.form].LOOKAHEAD * self.n_documents

    def document(self, n: int) -> np.ndarray:
        """The ids of example n."""
        return self.tokens.document(n)

    def check(self) -> None:
        """As of a TokenStore."""
        self.tokens.check()
        if self.tokens.path is not None:
            path = self.tokens.path.with_suffix(LABELS)
            if not path.exists() or path.stat().st_size != self.labels.nbytes:
                raise DataFault(f"{path} changed during training", hint="run the same command again", where=(str(path),))


@dataclass(frozen=True, eq=False)
class ExampleText:
    """As `Text`, of labelled examples."""

    train: ExampleStore
    val: ExampleStore
    tokenizer: Tokenizer
    notes: list[str]
    hashes: dict[str, str]
    labels: Labels

    @property
    def source_tokenizer(self) -> Tokenizer:
        """That of what a model of pairs reads; here there are no pairs, so nothing else."""
        return self.tokenizer


@dataclass(frozen=True)
class Question:
    """How rows are read: their form, and the classes, where the recipe names them. labels: what is known to a trained run."""

    form: str
    wanted: tuple[str, ...] | None = None
    labels: Labels | None = None


def open_examples(
    data: sections.Data, tokenizer: sections.Tokenizer, question: Question, say: Say = lambda line: None, given: Tokenizer | None = None
) -> ExampleText:
    """Both sides of the examples as ids, out of the cache or made now. given: a trained run's own tokenizer.

    Raises DataFault where a file, a line, a label or the tokenizer is unfit.
    """
    files = {key: find_tables(spec, f"data.{key}") for key, spec in (("train", data.train), ("val", data.val)) if spec is not None}
    digests = {key: [source.digest() for source in found] for key, found in files.items()}
    reading = {"fields": data.fields, "header": data.header, "split": str(data.split), **reading_of(Reader.of(data, question.form).columns)}
    content = hash_of({"examples": digests, "form": question.form, "classes": question.wanted, **reading})
    division = cache(partial(_divide, files, data, question.form))
    used = given or _tokenizer(tokenizer, content, question.form, division)

    def build(folder: Path) -> dict[str, Any]:
        labels = _labels(question, (one for side, one in division().read() if side == "train"))
        facts = _write(folder, division().read(), used, question.form, labels, ("train", "val"))
        return facts | {"labels": labels.to_json(), "notes": [*division().notes, *facts["notes"]]}

    folder, facts = cached("tokens", hash_of({"format": FORMAT, "examples": content, "tokenizer": used.hash}), build, say)
    train, val = (_open(folder, side, facts, used, question.form, f"data.{side}") for side in ("train", "val"))
    say(f"text: {train.n_documents:,} examples to learn from, {val.n_documents:,} held out")
    hashes = {"data": content, "tokenizer": used.hash}
    return ExampleText(train, val, used, [*used.notes, *facts["notes"]], hashes, Labels.of_json(facts["labels"]))


def encode_examples(
    spec: object, used: Tokenizer, data: sections.Data, question: Question, say: Say = lambda line: None, key: str = "--data"
) -> ExampleStore:
    """All of other examples as ids, nothing held out; `question.labels` are those of the run."""
    assert question.labels is not None
    labels, files, reader = question.labels, find_tables(spec, key), Reader.of(data, question.form, spec, labels=question.labels)
    reading = {"fields": data.fields, "header": data.header, **reading_of(reader.columns)}
    content = hash_of({"all": [source.digest() for source in files], "form": question.form, "labels": labels.to_json(), **reading})

    def build(folder: Path) -> dict[str, Any]:
        facts = _write(folder, (("val", example) for example in reader.read(files)), used, question.form, labels, ("val",))
        return facts | {"notes": [*replaced(files, reader.columns), *facts["notes"]]}

    folder, facts = cached("tokens", hash_of({"format": FORMAT, "examples": content, "tokenizer": used.hash}), build, say)
    for note in facts["notes"]:
        say(note)
    return _open(folder, "val", facts, used, question.form, key)


def in_memory(examples: Sequence[Example], used: Tokenizer, form: str, labels: Labels) -> ExampleStore:
    """A few examples as ids, without a file."""
    encoded = FORMS[form].encode(examples, used, labels)
    separator = np.array([used.vocabulary.separator], np.int32)
    ids = np.concatenate([piece for one in encoded for piece in (separator, one.ids)] + [separator])
    starts = np.cumsum([0, *(1 + len(one.ids) for one in encoded)])[:-1]
    asked = np.concatenate([*(one.labels for one in encoded), np.array([np.nan], np.float32)])
    n_bytes = sum(len(" ".join(one.texts).encode()) for one in examples)
    return ExampleStore(TokenStore(None, ids, starts, n_bytes, len(examples), True, used.vocabulary), asked, None, form)


def _divide(files: Mapping[str, list[Source]], data: sections.Data, form: str) -> Sides[Example]:
    read = {key: partial(Reader.of(data, form, getattr(data, key)).read, found) for key, found in files.items()}
    if "val" in read:
        division = sides.keep_apart(read["train"], read["val"], _whole, _size, "examples")
    else:
        division = sides.divide(read["train"], FORMS[form].known_by, _size, data.split.share, "examples")
    sources = [source for found in files.values() for source in found]
    return replace(division, notes=(*division.notes, *replaced(sources, Reader.of(data, form).columns)))


def _labels(question: Question, learnt: Iterable[Example]) -> Labels:
    """What there is to learn in the training side; whether there are two texts is said by its first example."""
    answers, n_texts = list[list[str]](), 0
    for one in learnt:
        answers.append(one.answers)
        n_texts = n_texts or len(one.texts)
    found = labels_of(question.form, answers, question.wanted)
    return replace(found, n_texts=n_texts) if "text_pair" in FORMS[question.form].OPTIONAL else found


def _whole(example: Example) -> str:
    return "\0".join([*example.texts, "", *example.answers])


def _size(example: Example) -> int:
    return sum(map(len, example.texts))


def _tokenizer(settings: sections.Tokenizer, content: str, form: str, division: Callable[[], Sides[Example]]) -> Tokenizer:
    if settings.path is not None:
        return loaded(settings.path, ["separator"])

    def texts() -> Iterator[str]:
        return (text for side, one in division().read() if side == "train" for text in FORMS[form].parts(one))

    return learn_tokenizer(settings, content, lambda: (texts(), division().characters))


def _write(
    folder: Path, read: Iterable[tuple[Side, Example]], used: Tokenizer, form: str, labels: Labels, sides: Iterable[Side]
) -> dict[str, Any]:
    """Encode all examples into files in `folder`; what is told about them besides."""
    writers = {side: Writer(folder, side, used.vocabulary, True) for side in sides}
    asked = {side: (folder / f"{side}{LABELS}").open("wb") for side in sides}
    raw = {side: (folder / f"{side}{RAW}").open("w", encoding="utf-8") for side in sides}
    coverage, n_later = Coverage(used), 0
    try:
        for batch in batches(read, _size):
            examples = [example for _, example in batch]
            texts = [" ".join(example.texts) for example in examples]
            coverage.sample(texts)
            for (side, example), text, one in zip(batch, texts, FORMS[form].encode(examples, used, labels), strict=True):
                coverage.count_unknown(text, one.ids)
                writers[side].add(Document(text, example.where), one.ids)
                one.labels.tofile(asked[side])
                raw[side].write(json.dumps([example.texts, example.answers, example.further]) + "\n")
            n_later += sum(example.n_later for example in examples)
    finally:
        for side, file in asked.items():
            np.array([np.nan], np.float32).tofile(file)  # of the last separator
            file.close()
            raw[side].close()
        facts = {side: writer.close() for side, writer in writers.items()}
    later = [f"{n_later:,} turns behind the assistant's last one were left out: nothing is asked for there"] if n_later else []
    return {"stores": facts, "separated": True, "notes": [*coverage.notes(), *later]}


def _open(folder: Path, side: str, facts: dict[str, Any], used: Tokenizer, form: str, key: str) -> ExampleStore:
    tokens = open_store(folder, side, facts, used.vocabulary, key)
    labels = np.memmap(folder / f"{side}{LABELS}", np.float32, "r", shape=(len(tokens),))
    return ExampleStore(tokens, labels, folder / f"{side}{RAW}", form)

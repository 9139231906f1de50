"""A text as ids in a memory-mapped file: encoded once, in bounded memory, on all cores; then known by its content.

Documents stand one after another with one separator between, and one at both ends: sep d1 sep d2 sep. A raw stream
(`data.split: tail 10%`) has no separator at all. What is cached is named by a hash of content and settings, so another
text or tokenizer can never be mistaken for it, and a moved file is found again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mini_tf.data.formats.documents import PART, Columns, Document, read, read_raw
from mini_tf.data.formats.sources import find
from mini_tf.data.raw_text import RawText, hash_of, reading_of, replaced
from mini_tf.data.split import Side
from mini_tf.data.tokenization.coverage import Coverage
from mini_tf.data.tokenization.tokenizer import Tokenizer, Vocabulary
from mini_tf.recipe import sections
from mini_tf.system.cache import cached, kept
from mini_tf.system.errors import DataFault

FORMAT = 1
BATCH = 4 * PART
"""Characters that are encoded together."""

Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class TokenStore:
    """ids (N,); starts (n_documents,): where each document's opening separator stands (0 for a raw stream).

    raw_bytes: UTF-8 bytes of the text, without separators: what bits per byte are divided by. path: None of what stands in memory.
    """

    path: Path | None
    ids: np.ndarray
    starts: np.ndarray
    raw_bytes: int
    n_documents: int
    separated: bool
    vocabulary: Vocabulary

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def lengths(self) -> np.ndarray:
        """(n_documents,): tokens of each, without separators."""
        return np.diff(self.starts, append=len(self) - self.separated) - self.separated

    def document(self, n: int) -> np.ndarray:
        """The ids of document n, without separators."""
        first, last = self.span(n)
        return self.ids[first + self.separated : last]

    def span(self, n: int) -> tuple[int, int]:
        """Where document n begins, opening separator included, and where it ends, closing separator excluded."""
        first = int(self.starts[n])
        return first, first + self.separated + int(self.lengths[n])

    def check(self) -> None:
        """DataFault where the file was cut meanwhile: reading on would kill the process (SIGBUS)."""
        if self.path is None:
            return
        for path, held in ((self.path, self.ids), (self.path.with_suffix(".starts"), self.starts)):
            size = path.stat().st_size if path.exists() else 0
            if size != held.nbytes:
                raise DataFault(f"{path} changed during training", hint="run the same command again", where=(str(path),))


@dataclass(frozen=True, eq=False)
class Text:
    """What a recipe's data and tokenizer came to. hashes: `data` (content and how it is read) and `tokenizer`."""

    train: TokenStore
    val: TokenStore
    tokenizer: Tokenizer
    notes: list[str]
    hashes: dict[str, str]

    labels = None

    @property
    def source_tokenizer(self) -> Tokenizer:
        """That of what a model of pairs reads; here there are no pairs, so nothing else."""
        return self.tokenizer


def open_text(
    data: sections.Data,
    tokenizer: sections.Tokenizer,
    say: Say = lambda line: None,
    needs: Iterable[str] = (),
    tokenizer_given: Tokenizer | None = None,
) -> Text:
    """Both sides of the text as ids, out of the cache or made now; the tokenizer is loaded, or trained on the training side.

    needs: special tokens (`mask`) that a loaded tokenizer is given where it lacks them. tokenizer_given: a trained run's own,
    taken as it is instead of all that.

    Raises DataFault where a file, a line or the tokenizer is unfit, or a side has nothing to predict.
    """
    raw = RawText.of(data)
    if tokenizer_given is not None:
        used = tokenizer_given
    elif tokenizer.path is not None:
        used = loaded(tokenizer.path, [*needs, *(["separator"] if raw.separated else [])])
    else:
        used = raw.learn_tokenizer(tokenizer)

    def build(folder: Path) -> dict[str, Any]:
        used.save(folder / "tokenizer.json")
        facts = _write(folder, raw.division().read(), used, raw.separated)
        return facts | {"notes": [*raw.division().notes, *facts["notes"]]}

    folder, facts = cached("tokens", _key(raw.hash, used), build, say)
    return _text(folder, facts, used, raw.hash, say)


def loaded(path: str, needs: Iterable[str]) -> Tokenizer:
    """A tokenizer from a file or a folder, with the special tokens that are needed."""
    used = Tokenizer.load(path)
    for name in needs:
        used = used.with_special(name)
    return used


def reopen(data: sections.Data, tokenizer: Tokenizer, hashes: Mapping[str, str], say: Say = lambda line: None) -> Text:
    """The text of a trained run by its own tokenizer; what was read from stdin, out of the cache by the recorded `hashes` (Text.hashes).

    Raises DataFault where stdin's text is not in the cache any more. Files are read as they are now: compare the hashes.
    """
    names = [name for spec in (data.train, data.val) for name in ([spec] if isinstance(spec, str) else spec or ())]
    if "-" not in names:
        return open_text(data, sections.Tokenizer(), say, tokenizer_given=tokenizer)
    found = kept("tokens", _key(hashes["data"], tokenizer))
    if found is None:
        raise DataFault("this run read its text from stdin, and the text is not in the cache any more", hint="--data FILE names another")
    return _text(*found, tokenizer, hashes["data"], say)


def _key(content_hash: str, tokenizer: Tokenizer) -> str:
    return hash_of({"format": FORMAT, "data": content_hash, "tokenizer": tokenizer.hash})


def _text(folder: Path, facts: dict[str, Any], tokenizer: Tokenizer, content_hash: str, say: Say) -> Text:
    stores = {side: open_store(folder, side, facts, tokenizer.vocabulary, f"data.{side}") for side in ("train", "val")}
    say("text: " + ", ".join(f"{side} {len(s):,} tokens in {s.n_documents:,} documents" for side, s in stores.items()))
    hashes = {"data": content_hash, "tokenizer": tokenizer.hash}
    return Text(stores["train"], stores["val"], tokenizer, [*tokenizer.notes, *facts["notes"]], hashes)


def encode_file(spec: object, tokenizer: Tokenizer, data: sections.Data, say: Say = lambda line: None, key: str = "--data") -> TokenStore:
    """All of another text as ids, nothing held out; `data` tells which column is read, and whether the run knew separators."""
    columns = Columns.of(data.fields, data.header, data.errors)
    sources = find(spec, key)
    raw = data.split.tail
    reading = reading_of(columns)
    recipe = [[source.digest() for source in sources], data.fields, data.header, raw, *([reading] if reading else [])]
    name = hash_of({"format": FORMAT, "all": recipe, "tokenizer": tokenizer.hash})

    def build(folder: Path) -> dict[str, Any]:
        documents = (read_raw if raw else read)(sources, columns)
        facts = _write(folder, (("val", document) for document in documents), tokenizer, separated=not raw)
        return facts | {"notes": [*replaced(sources, columns), *facts["notes"]]}

    folder, facts = cached("tokens", name, build, say)
    for note in facts["notes"]:
        say(note)
    return open_store(folder, "val", facts, tokenizer.vocabulary, key)


class Writer:
    """One side of the text on its way into files."""

    def __init__(self, folder: Path, side: str, vocabulary: Vocabulary, separated: bool) -> None:
        self.separator = np.array([vocabulary.separator], _dtype(vocabulary)) if separated else None
        self.ids, self.starts = (folder / f"{side}.ids").open("wb"), (folder / f"{side}.starts").open("wb")
        self.dtype, self.size = _dtype(vocabulary), vocabulary.size
        self.n = self.n_documents = self.raw_bytes = 0

    def add(self, document: Document, ids: np.ndarray) -> None:
        """A document, or a part of one. DataFault where the tokenizer made an id that it should not have."""
        if ids.size and int(ids.max()) >= self.size:
            raise DataFault(f"the tokenizer made id {int(ids.max())}, but has only {self.size} tokens")
        if document.opens:
            np.array([self.n], np.int64).tofile(self.starts)
            self.n_documents += 1
            self._separate()
        ids.astype(self.dtype).tofile(self.ids)
        self.n += len(ids)
        self.raw_bytes += len(document.text.encode())

    def _separate(self) -> None:
        if self.separator is not None:
            self.separator.tofile(self.ids)
            self.n += 1

    def close(self) -> dict[str, int]:
        self._separate()
        self.ids.close()
        self.starts.close()
        return {"tokens": self.n, "documents": self.n_documents, "raw_bytes": self.raw_bytes}


def _dtype(vocabulary: Vocabulary) -> type[np.uint16] | type[np.uint32]:
    return np.uint16 if vocabulary.size <= 1 << 16 else np.uint32


def _write(folder: Path, documents: Iterable[tuple[Side, Document]], tokenizer: Tokenizer, separated: bool) -> dict[str, Any]:
    """Encode all documents into files in `folder`; what is told about them besides."""
    vocabulary = tokenizer.vocabulary
    writers = {side: Writer(folder, side, vocabulary, separated) for side in ("train", "val")}
    coverage = Coverage(tokenizer)
    try:
        for batch in batches(documents, lambda document: len(document.text)):
            texts = [document.text for _, document in batch]
            coverage.sample(texts)
            for (side, document), ids in zip(batch, tokenizer.encode_batch(texts), strict=True):
                coverage.count_unknown(document.text, ids)
                writers[side].add(document, ids)
    finally:
        facts = {side: writer.close() for side, writer in writers.items()}
    return {"stores": facts, "separated": separated, "notes": coverage.notes()}


def batches(read: Iterable[tuple[Side, T]], length: Callable[[T], int]) -> Iterator[list[tuple[Side, T]]]:
    """What is encoded together: things of about BATCH characters, by the `length` of each."""
    batch, size = list[tuple[Side, T]](), 0
    for side, one in read:
        batch.append((side, one))
        size += length(one)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def open_store(folder: Path, side: str, facts: dict[str, Any], vocabulary: Vocabulary, key: str) -> TokenStore:
    numbers, path = facts["stores"][side], folder / f"{side}.ids"
    n, separated = numbers["tokens"], facts["separated"]
    if n < 2 or not numbers["raw_bytes"]:
        what = "there is no text in it" if key != "data.val" else "nothing is held out"
        more = "give more text" if key == "--data" else "give more text, or a larger data.split"
        raise DataFault(f"{key}: {what} ({n} tokens; at least 2 are needed)", hint=more)
    ids = np.memmap(path, _dtype(vocabulary), "r", shape=(n,))
    starts = np.memmap(folder / f"{side}.starts", np.int64, "r", shape=(numbers["documents"],))
    return TokenStore(path, ids, starts, numbers["raw_bytes"], numbers["documents"], separated, vocabulary)

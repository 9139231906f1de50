"""Pairs as ids: a store of the sources and one of the targets, document n of the one the partner of document n of the other.

Cached by content like any text. Both sides may have one tokenizer, which is then learnt from both, or each its own.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from mini_tf.data import sides
from mini_tf.data.formats.documents import Document
from mini_tf.data.pairs import FIELDS, Pair, PairFiles, by_source, columns_of, find_pairs, size, whole
from mini_tf.data.raw_text import hash_of, learn_tokenizer, reading_of, replaced
from mini_tf.data.sides import Sides
from mini_tf.data.split import Side
from mini_tf.data.token_store import Say, TokenStore, Writer, batches, loaded, open_store
from mini_tf.data.tokenization.coverage import Coverage
from mini_tf.data.tokenization.tokenizer import Tokenizer, Vocabulary
from mini_tf.recipe import sections
from mini_tf.system.cache import cached
from mini_tf.system.errors import DataFault


@dataclass(frozen=True, eq=False)
class PairStore:
    """source and target: as many documents in each. What is said of a text's size is said of the targets, which are asked for."""

    source: TokenStore
    target: TokenStore
    raw: Path
    """The pairs as they were written, a JSON list [source, target, alignment, further targets] a line."""

    def pairs(self) -> Iterator[Pair]:
        """The pairs as they were written, in order; counted from 1, since the file that they came from may have another name by now."""
        with self.raw.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                source, target, alignment, further = json.loads(line)
                yield Pair(source, target, f"pair {number}", alignment, tuple(further))

    def __len__(self) -> int:
        return len(self.target)

    @property
    def n_documents(self) -> int:
        """Pairs."""
        return self.target.n_documents

    @property
    def vocabulary(self) -> Vocabulary:
        """The target's."""
        return self.target.vocabulary

    @property
    def raw_bytes(self) -> int:
        """UTF-8 bytes of the targets."""
        return self.target.raw_bytes

    def document(self, n: int) -> np.ndarray:
        """The ids of target n."""
        return self.target.document(n)

    def check(self) -> None:
        """As of a TokenStore."""
        self.source.check()
        self.target.check()


@dataclass(frozen=True, eq=False)
class PairText:
    """As `Text`, of pairs; `source_tokenizer` is the same as `tokenizer` where there is one vocabulary."""

    train: PairStore
    val: PairStore
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer
    notes: list[str]
    hashes: dict[str, str]

    labels = None


PAIRS_FORMAT = 4
RAW = ".pairs.jsonl"
Tokenizers = tuple[Tokenizer, Tokenizer]
"""Of the source side, and of the target side; the same object where they share one vocabulary."""


def open_pairs(
    data: sections.Data, tokenizer: sections.Tokenizer, say: Say = lambda line: None, given: Tokenizers | None = None
) -> PairText:
    """Both sides of the pairs as ids, out of the cache or made now. given: a trained run's own tokenizers.

    Raises DataFault where a file, a line or a tokenizer is unfit, or a side lacks its partner.
    """
    files = {key: find_pairs(spec, f"data.{key}") for key, spec in (("train", data.train), ("val", data.val)) if spec is not None}
    columns = columns_of(data)
    digests = {key: [source.digest() for source in found.sources] for key, found in files.items()}
    content = hash_of({"pairs": digests, "fields": data.fields, "header": data.header, "split": str(data.split), **reading_of(columns)})
    division = cache(partial(_divide, files, data))
    used = given or _tokenizers(tokenizer, content, division)

    def build(folder: Path) -> dict[str, Any]:
        facts = _write(folder, division().read(), used, ("train", "val"))
        return facts | {"notes": [*division().notes, *facts["notes"]]}

    folder, facts = cached("tokens", _key(content, used), build, say)
    train, val = (_open(folder, side, facts, used, f"data.{side}") for side in ("train", "val"))
    say(f"text: {train.n_documents:,} pairs to learn from, {val.n_documents:,} held out")
    hashes = {"data": content, "tokenizer": used[1].hash} | ({} if used[0] is used[1] else {"source_tokenizer": used[0].hash})
    return PairText(train, val, used[1], used[0], [*dict.fromkeys(note for one in used for note in one.notes), *facts["notes"]], hashes)


def encode_pairs(spec: object, used: Tokenizers, data: sections.Data, say: Say = lambda line: None, key: str = "--data") -> PairStore:
    """All of other pairs as ids, nothing held out."""
    files, columns = find_pairs(spec, key), columns_of(data)
    digests = [source.digest() for source in files.sources]
    content = hash_of({"all": digests, "fields": data.fields, "header": data.header, **reading_of(columns)})

    def build(folder: Path) -> dict[str, Any]:
        facts = _write(folder, (("val", pair) for pair in files.read(columns)), used, ("val",))
        return facts | {"notes": [*replaced(files.sources, columns), *facts["notes"]]}

    folder, facts = cached("tokens", _key(content, used), build, say)
    for note in facts["notes"]:
        say(note)
    return _open(folder, "val", facts, used, key)


def _divide(files: Mapping[str, PairFiles], data: sections.Data) -> Sides[Pair]:
    columns = columns_of(data)
    read = {key: partial(found.read, columns) for key, found in files.items()}
    if "val" in read:
        division = sides.keep_apart(read["train"], read["val"], whole, size, "pairs")
    else:
        division = sides.divide(read["train"], by_source, size, data.split.share, "sources")
    sources = [source for found in files.values() for source in found.sources]
    return replace(division, notes=(*division.notes, *replaced(sources, columns)))


def _tokenizers(settings: sections.Tokenizer, content: str, division: Callable[[], Sides[Pair]]) -> Tokenizers:
    def learnt(side: sections.SideTokenizer, roles: Iterable[str]) -> Tokenizer:
        if side.path is not None:
            return loaded(side.path, ["separator"])
        known = [content, *roles]

        def texts() -> Iterator[str]:
            # One role after the other: of a huge text every n-th is learnt from, which must not be the sources alone.
            return (getattr(pair, role) for role in roles for where, pair in division().read() if where == "train")

        return learn_tokenizer(side, known, lambda: (texts(), division().characters))

    if settings.source is None:
        shared = learnt(settings, FIELDS)
        return shared, shared
    return learnt(settings.source, ["source"]), learnt(settings, ["target"])


def _key(content: str, used: Tokenizers) -> str:
    return hash_of({"format": PAIRS_FORMAT, "pairs": content, "tokenizers": [one.hash for one in used]})


def _write(folder: Path, read: Iterable[tuple[Side, Pair]], used: Tokenizers, sides: Iterable[Side]) -> dict[str, Any]:
    """Encode all pairs into files in `folder`; what is told about them besides."""
    by_role = dict(zip(FIELDS, used, strict=True))
    writers = {(side, role): Writer(folder, f"{side}.{role}", by_role[role].vocabulary, True) for side in sides for role in FIELDS}
    coverages = {role: Coverage(by_role[role]) for role in FIELDS}
    raw = {side: (folder / f"{side}{RAW}").open("w", encoding="utf-8") for side in sides}
    try:
        for batch in batches(read, size):
            for number, role in enumerate(FIELDS):
                texts = [(pair.source, pair.target)[number] for _, pair in batch]
                coverages[role].sample(texts)
                for (side, pair), text, ids in zip(batch, texts, by_role[role].encode_batch(texts), strict=True):
                    if not ids.size:
                        raise DataFault(f"{pair.where}: the tokenizer leaves nothing of the {role}", where=(pair.where,))
                    coverages[role].count_unknown(text, ids)
                    writers[side, role].add(Document(text, pair.where), ids)
            for side, pair in batch:
                raw[side].write(json.dumps([pair.source, pair.target, pair.alignment, pair.further]) + "\n")
    finally:
        for file in raw.values():
            file.close()
        facts = {f"{side}.{role}": writer.close() for (side, role), writer in writers.items()}
    notes = list(dict.fromkeys(note for coverage in coverages.values() for note in coverage.notes()))
    return {"stores": facts, "separated": True, "notes": notes}


def _open(folder: Path, side: str, facts: dict[str, Any], used: Tokenizers, key: str) -> PairStore:
    source, target = (open_store(folder, f"{side}.{role}", facts, one.vocabulary, key) for role, one in zip(FIELDS, used, strict=True))
    return PairStore(source, target, folder / f"{side}{RAW}")

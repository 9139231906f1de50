"""Encodes examples of any dataset into the files of a store, in batches on all cores, and counts unknown characters.

Several processes encode consecutive parts of the examples at once, each into stores of its own, which are then joined.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mini_tf.data.datasets import Dataset
from mini_tf.data.examples import Labels
from mini_tf.data.split import Part, SplitName
from mini_tf.data.store import Tokenizers, Writer, join_stores
from mini_tf.data.tokenization.coverage import Coverage
from mini_tf.parallel.dividing import ALONE, Team

BATCH = 4 << 20
"""Characters per batch. A batch ends with a part, so that it does not depend on the number of processes."""
SplitPart = Part[tuple[SplitName, Any]]


def write_stores(
    folder: Path,
    dataset: Dataset,
    parts: Sequence[SplitPart],
    tokenizers: Tokenizers,
    labels: Labels | None,
    separated: bool,
    advance: Callable[[int], None] = lambda characters: None,
    team: Team = ALONE,
) -> dict[str, Any]:
    """Encode all examples into files in `folder`; returns the facts needed to open the stores, and the notes.

    advance: called with the characters of a batch. team: the processes that encode, each a share of the parts.
    """

    def encode() -> dict[str, Any]:
        share = folder / f"share-{team.rank}"
        share.mkdir()
        return _encode(share, dataset, team.own(parts, lambda part: part.size), tokenizers, labels, separated, advance)

    def join() -> dict[str, Any]:
        stores = join_stores(folder, [(folder / f"share-{n}", share["stores"]) for n, share in enumerate(encoded)])
        return {"stores": stores, "notes": _notes(dataset, tokenizers, encoded)}

    encoded = team.on_all(encode)
    return team.on_first(join)


def _encode(
    folder: Path,
    dataset: Dataset,
    parts: Sequence[SplitPart],
    tokenizers: Tokenizers,
    labels: Labels | None,
    separated: bool,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    """Encode parts into stores in `folder`; returns facts of the stores, and counts for the notes."""
    coverages = _coverages(dataset, tokenizers)
    writers: dict[str, Writer] = {}
    dropped = Counter[str]()
    with ExitStack() as files:
        for batch, size, source in _batches(parts, dataset):
            of_batch = [example for _, example in batch]
            encoded = dataset.encode(of_batch, tokenizers, labels)
            for role, coverage in coverages.items():
                texts = [" ".join(dataset.texts(example, role == "source")) for example in of_batch]
                coverage.sample(texts)
                for (split, example), text, encoding in zip(batch, texts, encoded, strict=True):
                    name, ids = (split, encoding.ids) if role == "target" else (f"{split}.source", encoding.source)
                    assert ids is not None
                    if name not in writers:
                        writers[name] = Writer(files, folder, name, getattr(tokenizers, role).vocabulary, separated)
                    coverage.count_unknown(text, ids)
                    writers[name].add(text, ids, dataset.is_first_part(example), source)
            for (split, example), encoding in zip(batch, encoded, strict=True):
                writers[split].label(encoding, json.dumps(dataset.to_json(example)) if dataset.KEEPS_EXAMPLES else None)
            dropped.update(dataset.dropped(of_batch))
            advance(size)
        stores = {name: writer.close() for name, writer in writers.items()}
    return {
        "stores": stores,
        "dropped": dropped,
        "coverage": {role: coverage.to_json() for role, coverage in coverages.items()},
    }


def _coverages(dataset: Dataset, tokenizers: Tokenizers) -> dict[str, Coverage]:
    """Of each role that has texts."""
    return {
        role: Coverage(getattr(tokenizers, role)) for role in (("source", "target") if dataset.SOURCE else ("target",))
    }


def _notes(dataset: Dataset, tokenizers: Tokenizers, encoded: Sequence[Mapping[str, Any]]) -> list[str]:
    """The notes on all parts. encoded: what `_encode` returned for each share of them."""
    coverages, dropped = _coverages(dataset, tokenizers), Counter[str]()
    for share in encoded:
        dropped.update(share["dropped"])
        for role, coverage in coverages.items():
            coverage.add(share["coverage"][role])
    notes = dict.fromkeys(note for coverage in coverages.values() for note in coverage.notes())
    return [*notes, *(message.format(n=n) for message, n in dropped.items() if n)]


def _batches(parts: Sequence[SplitPart], dataset: Dataset) -> Iterator[tuple[list[tuple[SplitName, Any]], int, int]]:
    """Batches of about BATCH characters, each with its number of characters, and its source."""
    for part in parts:
        batch, size = list[tuple[SplitName, Any]](), 0
        for split, example in part.read():
            batch.append((split, example))
            size += dataset.size(example)
            if size >= BATCH:
                yield batch, size, part.source
                batch, size = [], 0
        if batch:
            yield batch, size, part.source

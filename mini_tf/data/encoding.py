"""Encodes examples of any dataset into the files of a store, in batches on all cores, and counts unknown characters."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mini_tf.data.datasets import Dataset
from mini_tf.data.labels import Labels
from mini_tf.data.split import SplitName
from mini_tf.data.store import Tokenizers, Writer
from mini_tf.data.tokenization.coverage import Coverage

BATCH = 4 << 20
"""Characters per batch."""


def write_stores(
    folder: Path,
    dataset: Dataset,
    examples: Iterable[tuple[SplitName, Any]],
    tokenizers: Tokenizers,
    labels: Labels | None,
    separated: bool,
    advance: Callable[[int], None] = lambda characters: None,
) -> dict[str, Any]:
    """Encode all examples into files in `folder`; returns the facts needed to open the stores, and the notes.

    advance: called with the characters of each encoded batch.
    """
    roles = ("source", "target") if dataset.SOURCE else ("target",)
    coverages = {role: Coverage(getattr(tokenizers, role)) for role in roles}
    writers: dict[str, Writer] = {}
    dropped: dict[str, int] = {}
    with ExitStack() as files:
        for batch, size in _batches(examples, dataset):
            of_batch = [example for _, example in batch]
            encoded = dataset.encode(of_batch, tokenizers, labels)
            for role in roles:
                texts = [" ".join(dataset.texts(example, role == "source")) for example in of_batch]
                coverages[role].sample(texts)
                for (split, example), text, one in zip(batch, texts, encoded, strict=True):
                    name, ids = (split, one.ids) if role == "target" else (f"{split}.source", one.source)
                    assert ids is not None
                    if name not in writers:
                        writers[name] = Writer(files, folder, name, getattr(tokenizers, role).vocabulary, separated)
                    coverages[role].count_unknown(text, ids)
                    writers[name].add(text, ids, dataset.is_first_part(example))
            for (split, example), one in zip(batch, encoded, strict=True):
                writers[split].label(one, json.dumps(dataset.to_json(example)) if dataset.KEEPS_EXAMPLES else None)
            for message, n in dataset.dropped(of_batch).items():
                dropped[message] = dropped.get(message, 0) + n
            advance(size)
        facts = {name: writer.close() for name, writer in writers.items()}
    notes = dict.fromkeys(note for coverage in coverages.values() for note in coverage.notes())
    return {"stores": facts, "notes": [*notes, *(message.format(n=n) for message, n in dropped.items() if n)]}


def _batches(examples: Iterable[tuple[SplitName, Any]], dataset: Dataset) -> Iterator[tuple[list[tuple[SplitName, Any]], int]]:
    """Batches of about BATCH characters, each with its number of characters."""
    batch, size = list[tuple[SplitName, Any]](), 0
    for split, example in examples:
        batch.append((split, example))
        size += dataset.size(example)
        if size >= BATCH:
            yield batch, size
            batch, size = [], 0
    if batch:
        yield batch, size

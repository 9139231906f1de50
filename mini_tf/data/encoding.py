"""Encodes examples of any dataset into a store, in batches, on all cores."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mini_tf.data.datasets import Dataset
from mini_tf.data.labels import Labels
from mini_tf.data.split import Side
from mini_tf.data.store import Tokenizers, Writer
from mini_tf.data.tokenization.coverage import Coverage

BATCH = 4 << 20
"""Characters that are encoded together."""


def write(
    folder: Path,
    dataset: Dataset,
    read: Iterable[tuple[Side, Any]],
    used: Tokenizers,
    labels: Labels | None,
    separated: bool,
    reached: Callable[[int], None] = lambda characters: None,
) -> dict[str, Any]:
    """Encode all examples into files in `folder`; returns the facts to open them, and notes.

    reached: called with the number of encoded characters.
    """
    roles = ("source", "target") if dataset.SOURCE else ("target",)
    coverages = {role: Coverage(getattr(used, role)) for role in roles}
    writers: dict[str, Writer] = {}
    left_out: dict[str, int] = {}
    with ExitStack() as files:
        for batch, size in _batches(read, dataset):
            examples = [example for _, example in batch]
            encoded = dataset.encode(examples, used, labels)
            for role in roles:
                texts = [" ".join(dataset.texts(example, role == "source")) for example in examples]
                coverages[role].sample(texts)
                for (side, example), text, one in zip(batch, texts, encoded, strict=True):
                    name, ids = (side, one.ids) if role == "target" else (f"{side}.source", one.source)
                    assert ids is not None
                    if name not in writers:
                        writers[name] = Writer(files, folder, name, getattr(used, role).vocabulary, separated)
                    coverages[role].count_unknown(text, ids)
                    writers[name].add(text, ids, dataset.opens(example))
            for (side, example), one in zip(batch, encoded, strict=True):
                writers[side].label(one, json.dumps(dataset.to_json(example)) if dataset.KEEPS_EXAMPLES else None)
            for told, n in dataset.left_out(examples).items():
                left_out[told] = left_out.get(told, 0) + n
            reached(size)
        facts = {name: writer.close() for name, writer in writers.items()}
    notes = dict.fromkeys(note for coverage in coverages.values() for note in coverage.notes())
    return {"stores": facts, "notes": [*notes, *(told.format(n=n) for told, n in left_out.items() if n)]}


def _batches(read: Iterable[tuple[Side, Any]], dataset: Dataset) -> Iterator[tuple[list[tuple[Side, Any]], int]]:
    """Batches of examples of about BATCH characters, with their number of characters."""
    batch, size = list[tuple[Side, Any]](), 0
    for side, example in read:
        batch.append((side, example))
        size += dataset.size(example)
        if size >= BATCH:
            yield batch, size
            batch, size = [], 0
    if batch:
        yield batch, size

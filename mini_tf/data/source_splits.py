"""The split of a data mixture: of each source by itself, and no example of one in the validation data of another."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mini_tf.data.split import DataSplit, ExampleHasher, Examples, Part, SplitName, hash_text
from mini_tf.system.errors import DataFault

SplitOf = Callable[[Examples, Examples | None], DataSplit]
"""The split of the examples of one source."""


def split_sources(
    split_of: SplitOf,
    hasher: ExampleHasher,
    train: Sequence[Examples],
    val: Sequence[Examples] | None,
    names: Sequence[str],
    in_folds: bool = False,
) -> DataSplit:
    """The split of the sources of a mixture, with the number of each; without `val` each is split by itself.

    A training example that another source holds out is removed, with a note; DataFault if a source has no other ones.
    names: of the sources, if there are several. in_folds: all are split as one, since the folds of each would separate
    a document that stands in two sources from itself.
    """
    if val is not None or in_folds:
        return split_of(_numbered(train), None if val is None else _numbered(val))
    splits = [split_of(of_source, None) for of_source in train]
    if len(splits) == 1:
        return splits[0]
    hashes = [split.hashes() for split in splits if split.hashes is not None]
    held_out = [of_val for _, of_val in hashes]
    splits = [
        _apart(split, of_train, np.concatenate([*held_out[:n], *held_out[n + 1 :]]), hasher, name)
        for n, (split, (of_train, _), name) in enumerate(zip(splits, hashes, names, strict=True))
    ]
    parts = [replace(part, source=n) for n, of_source in enumerate(splits) for part in of_source.parts]
    notes = (f"{name}: {note}" for name, of_source in zip(names, splits, strict=True) for note in of_source.notes)
    return DataSplit(parts, sum(of_source.characters for of_source in splits), tuple(notes))


def _numbered(sources: Sequence[Examples]) -> Examples:
    """The examples of all sources, with the number of each."""
    parts = [replace(part, source=n) for n, examples in enumerate(sources) for part in examples.parts]
    return replace(sources[0], parts=parts)


def _apart(split: DataSplit, trained: np.ndarray, held_out: np.ndarray, hasher: ExampleHasher, name: str) -> DataSplit:
    """The split of a source, with training examples of the hashes `trained`, without those that others hold out."""
    shared = np.intersect1d(trained, held_out)
    if not len(shared):
        return split
    what = f"{len(shared)} of {len(trained)} different training {hasher.unit} are also in the validation data"
    if len(shared) == len(trained):
        raise DataFault(f"data.train: {name}: {what} of other sources", hint="give data.val, or leave the source out")
    removed = frozenset(shared.tolist())
    parts = [replace(part, read=partial(_without, part, removed, hasher)) for part in split.parts]
    return replace(split, parts=parts, notes=(*split.notes, f"{what} of other sources; they were removed"))


def _without(
    part: Part[tuple[SplitName, Any]], removed: frozenset[int], hasher: ExampleHasher
) -> Iterator[tuple[SplitName, Any]]:
    is_removed = False
    for split, example in part.read():
        if hasher.is_first_part(example):
            is_removed = split == "train" and hash_text(hasher.key(example)) in removed
        if not is_removed:
            yield split, example

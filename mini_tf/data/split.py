"""Splits examples into training and validation data: equal on every machine, and without overlap.

The split of an example is decided by a hash of its key, so growing data keep their split. The parts of a very long
document have the hash of the first part.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mini_tf.system.errors import DataFault

Side = Literal["train", "val"]
Read = Callable[[], Iterator[Any]]
"""Creates the examples anew at each call; they are never all in memory."""
FEW = 10
"""With fewer examples a share could be empty."""


@dataclass(frozen=True)
class Division:
    """Every example with its split; `characters`: of both splits; `notes`: for the user."""

    read: Callable[[], Iterator[tuple[Side, Any]]]
    characters: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Known:
    """The key of examples; size: their characters; opens: False for a later part of a document.

    unit: their name in messages; nothing: the message if there are none.
    """

    by: Callable[[Any], str]
    size: Callable[[Any], int]
    opens: Callable[[Any], bool] = lambda example: True
    unit: str = "examples"
    nothing: str = "no examples"

    def scan(self, examples: Iterable[Any]) -> tuple[np.ndarray, int]:
        """The hash of every example (uint64), and the number of characters."""
        hashes, characters = array("Q"), 0  # eight bytes per example
        for example in examples:
            characters += self.size(example)
            if self.opens(example):
                hashes.append(hash_text(self.by(example)))
        return np.array(hashes, np.uint64), characters

    def hashed(self, examples: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Every example with its hash; a later part has that of the first."""
        one = 0
        for example in examples:
            if self.opens(example):
                one = hash_text(self.by(example))
            yield one, example


def hold_out(read: Read, known: Known, share: float) -> Division:
    """Split off about this share of the keys, by hash; of few keys the last."""
    hashes, characters = known.scan(read())
    distinct = np.unique(hashes)
    if len(distinct) < 2:
        raise DataFault(f"data.train: {len(distinct)} different {known.unit}; at least 2 are needed, one for validation")
    if len(distinct) < FEW:
        last = int(hashes[-1])
        notes = (f"fewer than {FEW} different {known.unit}: the last one is the validation data",)
        return Division(lambda: _sided(read(), known, lambda hashed: hashed == last), characters, notes)
    return hold_out_by_hash(read, known, share, distinct, characters)


def hold_out_by_hash(read: Read, known: Known, share: float, distinct: np.ndarray, characters: int) -> Division:
    """distinct: the different hashes, sorted. At least the smallest is validation data, at least the largest training
    data.
    """
    threshold = min(max(int(share * 2**64), int(distinct[0]) + 1), int(distinct[-1]))
    return Division(lambda: _sided(read(), known, lambda hashed: hashed < threshold), characters)


def keep_apart(train: Read, val: Read, known: Known) -> Division:
    """Given splits; examples of `train` are removed from `val`."""
    (train_hashes, n_train), (val_hashes, n_val) = known.scan(train()), known.scan(val())
    for key, n in (("data.train", n_train), ("data.val", n_val)):
        if not n:
            raise DataFault(f"{key}: {known.nothing} in it")
    shared = np.isin(val_hashes, np.unique(train_hashes))
    if shared.all():
        hint = "remove data.val: then a part of data.train is used for validation"
        raise DataFault(f"data.val: all of its {len(shared)} {known.unit} are also in data.train", hint=hint)
    left_out = frozenset(val_hashes[shared].tolist())

    def read() -> Iterator[tuple[Side, Any]]:
        yield from (("train", example) for example in train())
        yield from (("val", example) for hashed, example in known.hashed(val()) if hashed not in left_out)

    told = f"{int(shared.sum())} of {len(shared)} {known.unit} of data.val are also in data.train; they were removed from data.val"
    return Division(read, n_train + n_val, (told,) if left_out else ())


def hash_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _sided(examples: Iterator[Any], known: Known, held_out: Callable[[int], bool]) -> Iterator[tuple[Side, Any]]:
    for hashed, example in known.hashed(examples):
        yield "val" if held_out(hashed) else "train", example

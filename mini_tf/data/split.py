"""Which examples are learnt from and which are held out: the same on every machine, and never one on both sides.

An example's side is decided by a hash of what it is known by, so data that grow keep their split. A document that is so long that it
comes in parts is known by its first part.
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
"""Makes the examples anew, as often as it is called: they are never held all at once."""
FEW = 10
"""Examples, of which a share would be none, or by chance many."""


@dataclass(frozen=True)
class Division:
    """Every example with its side, as often as asked; `characters` of both sides together; `notes` for people."""

    read: Callable[[], Iterator[tuple[Side, Any]]]
    characters: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Known:
    """What examples are known by; size: their characters; opens: False for a part of one after the first.

    unit: how messages call them; nothing: what is said where there is none.
    """

    by: Callable[[Any], str]
    size: Callable[[Any], int]
    opens: Callable[[Any], bool] = lambda example: True
    unit: str = "examples"
    nothing: str = "there are no examples"

    def scan(self, examples: Iterable[Any]) -> tuple[np.ndarray, int]:
        """The hash of every example (uint64), and the number of characters of all."""
        hashes, characters = array("Q"), 0  # eight bytes an example, however many there are
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
    """Hold out about this share of what examples are known by, by hash; of few the last."""
    hashes, characters = known.scan(read())
    distinct = np.unique(hashes)
    if len(distinct) < 2:
        raise DataFault(f"data.train: {len(distinct)} different {known.unit}; at least 2 are needed, one of them to be held out")
    if len(distinct) < FEW:
        last = int(hashes[-1])
        notes = (f"fewer than {FEW} different {known.unit}: the last is held out",)
        return Division(lambda: _sided(read(), known, lambda hashed: hashed == last), characters, notes)
    return hold_out_by_hash(read, known, share, distinct, characters)


def hold_out_by_hash(read: Read, known: Known, share: float, distinct: np.ndarray, characters: int) -> Division:
    """distinct: the different hashes in order. At least the smallest is held out and at least the largest is not."""
    threshold = min(max(int(share * 2**64), int(distinct[0]) + 1), int(distinct[-1]))
    return Division(lambda: _sided(read(), known, lambda hashed: hashed < threshold), characters)


def keep_apart(train: Read, val: Read, known: Known) -> Division:
    """Two sides that were given: nothing is held out, but what stands in `train` too is left out of `val`."""
    (train_hashes, n_train), (val_hashes, n_val) = known.scan(train()), known.scan(val())
    for key, n in (("data.train", n_train), ("data.val", n_val)):
        if not n:
            raise DataFault(f"{key}: {known.nothing} in it")
    shared = np.isin(val_hashes, np.unique(train_hashes))
    if shared.all():
        hint = "leave data.val out: a part is then held out"
        raise DataFault(f"data.val: all of its {len(shared)} {known.unit} also stand in data.train", hint=hint)
    left_out = frozenset(val_hashes[shared].tolist())

    def read() -> Iterator[tuple[Side, Any]]:
        yield from (("train", example) for example in train())
        yield from (("val", example) for hashed, example in known.hashed(val()) if hashed not in left_out)

    told = f"{int(shared.sum())} of {len(shared)} {known.unit} of data.val also stand in data.train; they were left out of it"
    return Division(read, n_train + n_val, (told,) if left_out else ())


def hash_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _sided(examples: Iterator[Any], known: Known, held_out: Callable[[int], bool]) -> Iterator[tuple[Side, Any]]:
    for hashed, example in known.hashed(examples):
        yield "val" if held_out(hashed) else "train", example

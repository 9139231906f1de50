"""Which rows of a table are learnt from and which are held out: by a hash of what a row is known by, so never one on both sides."""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from mini_tf.data.split import FEW, Side, hash_text
from mini_tf.system.errors import DataFault

T = TypeVar("T")


@dataclass(frozen=True)
class Sides(Generic[T]):
    """Every row with its side, as often as asked; `characters` of all; `notes` for people."""

    read: Callable[[], Iterator[tuple[Side, T]]]
    characters: int
    notes: tuple[str, ...] = ()


def divide(rows: Callable[[], Iterator[T]], known_by: Callable[[T], str], size: Callable[[T], int], share: float, what: str) -> Sides[T]:
    """Hold out about this share of what rows are known by, by hash; of few the last.

    size: characters of a row. what: how messages call what it is known by.
    """
    hashes, characters = _scan(rows(), known_by, size)
    distinct = np.unique(hashes)
    if len(distinct) < 2:
        raise DataFault(f"data.train: {len(distinct)} different {what}; at least 2 are needed, one of them to be held out")
    if len(distinct) < FEW:
        last = int(hashes[-1])
        held = Sides(lambda: _by(rows(), known_by, lambda hashed: hashed == last), characters)
        return replace(held, notes=(f"fewer than {FEW} different {what}: the last is held out",))
    # At least the smallest hash is held out and at least the largest is not.
    threshold = min(max(int(share * 2**64), int(distinct[0]) + 1), int(distinct[-1]))
    return Sides(lambda: _by(rows(), known_by, lambda hashed: hashed < threshold), characters)


def keep_apart(
    train: Callable[[], Iterator[T]], val: Callable[[], Iterator[T]], known_by: Callable[[T], str], size: Callable[[T], int], what: str
) -> Sides[T]:
    """Two texts that were given; a row of `val` that stands in `train` too is left out of `val`."""
    train_hashes, n_train = _scan(train(), known_by, size)
    val_hashes, n_val = _scan(val(), known_by, size)
    for key, n in (("data.train", n_train), ("data.val", n_val)):
        if not n:
            raise DataFault(f"{key}: there are no {what} in it")
    shared = np.isin(val_hashes, np.unique(train_hashes))
    if shared.all():
        hint = "leave data.val out: a part is then held out"
        raise DataFault(f"data.val: all of its {len(shared)} {what} also stand in data.train", hint=hint)
    known = frozenset(val_hashes[shared].tolist())

    def read() -> Iterator[tuple[Side, T]]:
        yield from (("train", row) for row in train())
        yield from (("val", row) for row in val() if not known or hash_text(known_by(row)) not in known)

    told = f"{int(shared.sum())} of {len(shared)} {what} of data.val also stand in data.train; they were left out of it"
    return Sides(read, n_train + n_val, (told,) if known else ())


def _scan(rows: Iterator[T], known_by: Callable[[T], str], size: Callable[[T], int]) -> tuple[np.ndarray, int]:
    """The hash of every row (uint64), and the number of characters of all."""
    hashes, characters = array("Q"), 0
    for row in rows:
        characters += size(row)
        hashes.append(hash_text(known_by(row)))
    return np.array(hashes, np.uint64), characters


def _by(rows: Iterator[T], known_by: Callable[[T], str], held_out: Callable[[int], bool]) -> Iterator[tuple[Side, T]]:
    for row in rows:
        yield "val" if held_out(hash_text(known_by(row))) else "train", row

"""The training / validation split: the same on every machine, and no example in both splits.

A hash of an example's split key decides its split, so examples keep their split when the data grow. A long document
that is read in several parts has the hash of its first part. Several processes read and encode the parts together.
"""

import base64
import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from mini_tf.parallel.dividing import ALONE, Team
from mini_tf.system.errors import DataFault

Item = TypeVar("Item", covariant=True)

SIZE = 1 << 20
"""Bytes of the files of a part, at least: batches of examples end with it."""


@dataclass(frozen=True)
class Part(Generic[Item]):
    """read: iterates over the items anew at every call; they are never all in memory. size: bytes of its files. source:
    number of the source in a mixture.
    """

    read: Callable[[], Iterator[Item]]
    size: int = 0
    source: int = 0


def read_all(parts: Sequence[Part[Item]]) -> Iterator[Item]:
    return (item for part in parts for item in part.read())


@dataclass(frozen=True)
class Examples:
    """All examples of data.train or data.val, in parts that begin with the beginning of an example.

    team: the processes that read them together. none: the error if there is no example.
    """

    parts: Sequence[Part[Any]]
    team: Team = ALONE
    none: Callable[[], DataFault] = lambda: DataFault("no examples")

    @classmethod
    def of(cls, read: Callable[[], Iterator[Any]]) -> "Examples":
        """Examples in a single part."""
        return cls((Part(read),))

    def read(self) -> Iterator[Any]:
        """All examples in order; DataFault at the first invalid one, or if there is none."""
        any_read = False
        for example in read_all(self.parts):
            any_read = True
            yield example
        if not any_read:
            raise self.none()

    def map(self, change: Callable[[Iterator[Any]], Iterator[Item]]) -> list[Part[Item]]:
        """The parts, with what `change` makes of the examples of each."""
        return [replace(part, read=partial(lambda read: change(read()), part.read)) for part in self.parts]


SplitName = Literal["train", "val"]
MIN_EXAMPLES = 10
"""With fewer distinct examples, a share chosen by hash could be empty or far too large."""


@dataclass(frozen=True)
class DataSplit:
    """parts: of all examples, each with its split. characters: of both splits. notes: to be printed.

    hashes: finds the distinct ones of the examples of which a part is in the training, and in the validation split;
    None of a split that no other source is compared with.
    """

    parts: Sequence[Part[tuple[SplitName, Any]]]
    characters: int
    notes: tuple[str, ...] = ()
    hashes: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None

    @classmethod
    def in_one_part(
        cls, read: Callable[[], Iterator[tuple[SplitName, Any]]], characters: int, notes: tuple[str, ...] = ()
    ) -> "DataSplit":
        """A split in which an example depends on those before it."""
        return cls((Part(read),), characters, notes)

    def read(self) -> Iterator[tuple[SplitName, Any]]:
        return read_all(self.parts)

    def examples(self, split: SplitName) -> Iterator[Any]:
        return (example for part, example in self.read() if part == split)


@dataclass(frozen=True)
class ExampleHasher:
    """Hashes examples by a key.

    size: characters of an example. is_first_part: False for the later parts of an example. unit: what messages call
    examples. stratum: folds have equal shares of the examples of each; None: all are alike.
    """

    key: Callable[[Any], str]
    size: Callable[[Any], int]
    is_first_part: Callable[[Any], bool] = lambda example: True
    unit: str = "examples"
    stratum: Callable[[Any], str] | None = None

    def scan(self, examples: Iterable[Any]) -> tuple[np.ndarray, int]:
        """The hash of every example (uint64), and the number of characters of all."""
        hashes, characters = array("Q"), 0  # eight bytes per example
        for example in examples:
            characters += self.size(example)
            if self.is_first_part(example):
                hashes.append(hash_text(self.key(example)))
        return np.array(hashes, np.uint64), characters

    def scan_together(self, examples: Examples) -> tuple[np.ndarray, int]:
        """`scan` of all parts; each process of the team reads its own ones. DataFault if there are no examples."""

        def scan_share() -> tuple[str, int]:
            parts = examples.team.assigned(examples.parts, lambda part: part.size)
            hashes, characters = self.scan(read_all(parts))
            return base64.b64encode(hashes.tobytes()).decode(), characters

        scans = examples.team.on_all(scan_share)
        hashes = np.concatenate([np.frombuffer(base64.b64decode(encoded), np.uint64) for encoded, _ in scans])
        if not len(hashes):
            raise examples.none()
        return hashes, sum(characters for _, characters in scans)

    def hashed(self, examples: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Every example with its hash; later parts have the hash of the first."""
        hash_ = 0
        for example in examples:
            if self.is_first_part(example):
                hash_ = hash_text(self.key(example))
            yield hash_, example


def hold_out(examples: Examples, hasher: ExampleHasher, share: float) -> DataSplit:
    """Hold out about this share of the distinct keys, by hash; of fewer than MIN_EXAMPLES, the last one."""
    hashes, characters = hasher.scan_together(examples)
    distinct = np.unique(hashes)
    if len(distinct) < 2:
        shortage = f"{len(distinct)} different {hasher.unit}; at least 2 are needed"
        raise DataFault(f"data.train: {shortage}, one for validation")
    if len(distinct) < MIN_EXAMPLES:
        last = int(hashes[-1])
        notes = (f"fewer than {MIN_EXAMPLES} different {hasher.unit}: the last one is the validation data",)
        parts = _with_split(examples, hasher, lambda hashed: hashed == last)
        return DataSplit(parts, characters, notes, lambda: (distinct[distinct != hashes[-1]], hashes[-1:]))
    return hold_out_by_hash(examples, hasher, share, distinct, characters)


def hold_out_by_hash(
    examples: Examples, hasher: ExampleHasher, share: float, distinct: np.ndarray, characters: int
) -> DataSplit:
    """distinct: the sorted distinct hashes. At least the smallest one is held out and at least the largest is not."""
    threshold = min(max(int(share * 2**64), int(distinct[0]) + 1), int(distinct[-1]))
    parts = _with_split(examples, hasher, lambda hashed: hashed < threshold)
    n_held_out = int(np.searchsorted(distinct, np.uint64(threshold)))
    return DataSplit(parts, characters, (), lambda: (distinct[n_held_out:], distinct[:n_held_out]))


def hold_out_fold(examples: Examples, hasher: ExampleHasher, folds: int, fold: int) -> DataSplit:
    """Hold out the part `fold` (from 1) of `folds` parts, whose numbers of distinct keys differ by at most one.

    Every key is held out in exactly one fold. The keys are ordered by hash and cut into consecutive parts. With strata
    they are ordered by stratum, then by hash, and dealt to the folds in turn, so that the numbers of keys of a stratum
    differ by at most one too; a key with examples of several strata belongs to the first one by name.
    """
    hashes, characters = hasher.scan_together(examples)
    distinct = np.unique(hashes)
    if len(distinct) < folds:
        shortage = f"{len(distinct)} different {hasher.unit}; at least {folds} are needed"
        hint = f"data.split.folds={len(distinct)}" if len(distinct) > 1 else ""
        raise DataFault(f"data.train: {shortage}, one for each fold of data.split", hint=hint)
    if hasher.stratum is not None:
        with examples.team.group.independently():
            fold_hashes = frozenset(_by_stratum(examples.read(), hasher)[fold - 1 :: folds])
        return DataSplit(_with_split(examples, hasher, lambda hashed: hashed in fold_hashes), characters)
    begin, end = (len(distinct) * n // folds for n in (fold - 1, fold))
    lowest, highest = int(distinct[begin]), int(distinct[end - 1])
    return DataSplit(_with_split(examples, hasher, lambda hashed: lowest <= hashed <= highest), characters)


def _by_stratum(examples: Iterator[Any], hasher: ExampleHasher) -> list[int]:
    """The distinct hashes, ordered by stratum, then by value."""
    assert hasher.stratum is not None
    strata: dict[int, str] = {}
    for hashed, example in hasher.hashed(examples):
        stratum = hasher.stratum(example)
        strata[hashed] = min(strata.get(hashed, stratum), stratum)
    return sorted(strata, key=lambda hashed: (strata[hashed], hashed))


def split_as_given(train: Examples, val: Examples, hasher: ExampleHasher) -> DataSplit:
    """Both splits as given, but without the examples of `val` that are also in `train`."""
    (train_hashes, n_train), (val_hashes, n_val) = hasher.scan_together(train), hasher.scan_together(val)
    shared = np.isin(val_hashes, np.unique(train_hashes))
    if shared.all():
        hint = "remove data.val: then a part of data.train is used for validation"
        raise DataFault(f"data.val: all of its {len(shared)} {hasher.unit} are also in data.train", hint=hint)
    removed = frozenset(val_hashes[shared].tolist())
    parts = val.map(lambda part: (example for hash_, example in hasher.hashed(part) if hash_ not in removed))
    overlap = f"{int(shared.sum())} of {len(shared)} {hasher.unit} of data.val are also in data.train"
    notes = (f"{overlap}; they were removed from data.val",) if removed else ()
    parts_of_both = [*as_split(train, "train"), *as_split(replace(val, parts=parts), "val")]
    return DataSplit(parts_of_both, n_train + n_val, notes)


def as_split(examples: Examples, split: SplitName) -> list[Part[tuple[SplitName, Any]]]:
    """The parts of examples that are all in one split."""
    return examples.map(lambda part: ((split, example) for example in part))


def limit_training(data: DataSplit, hasher: ExampleHasher, n: int) -> DataSplit:
    """Only `n` training examples, and all validation examples; a smaller subset is part of a larger one.

    The order is that of another hash than the split's, so it is independent of the split.
    """
    ranks = array("Q", (rank for rank, split, _ in _ranked(data, hasher) if split == "train" and rank is not None))
    if len(ranks) <= n:
        note = f"data.max_train_samples {n:,}: there are {len(ranks):,} training {hasher.unit}"
        return replace(data, notes=(*data.notes, note))
    highest = int(np.partition(np.array(ranks, np.uint64), n - 1)[n - 1])
    n_highest = n - sum(rank < highest for rank in ranks)  # of examples with one key, the first ones

    def read() -> Iterator[tuple[SplitName, Any]]:
        left, taken = n_highest, False
        for rank, split, example in _ranked(data, hasher):
            if split == "train" and rank is not None:
                taken = rank < highest or (rank == highest and left > 0)
                left -= rank == highest
            if split == "val" or taken:
                yield split, example

    return DataSplit.in_one_part(read, sum(hasher.size(example) for _, example in read()), data.notes)


def _ranked(data: DataSplit, hasher: ExampleHasher) -> Iterator[tuple[int | None, SplitName, Any]]:
    """Every example with its split, and the rank of its first part; None for later parts."""
    for split, example in data.read():
        rank = hash_text(f"max_train_samples\0{hasher.key(example)}") if hasher.is_first_part(example) else None
        yield rank, split, example


def hash_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _with_split(
    examples: Examples, hasher: ExampleHasher, held_out: Callable[[int], bool]
) -> list[Part[tuple[SplitName, Any]]]:
    return examples.map(
        lambda part: (("val" if held_out(hashed) else "train", example) for hashed, example in hasher.hashed(part))
    )

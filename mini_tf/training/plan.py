"""Which rows each step trains on: a pure function of (seed, step), so there is no state to save.

Row i of step s is number s * batch_size + i of an endless list of epochs; an epoch is a keyed permutation of all rows:
a Feistel network of six rounds over the next larger square of a power of two, iterated until it lands on a row (Black
and Rogaway 2002, "Ciphers with arbitrary finite domains"). Integer arithmetic only, so equal on every machine and
release.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from mini_tf.recipe.sections import Train
from mini_tf.system.seeds import seed_of

_STEP = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = 6


def scatter(seed: int, index: np.ndarray) -> np.ndarray:
    """Independent 64-bit numbers (uint64) for each index (n,): output number `index` of splitmix64 started at `seed`."""
    z = np.uint64(seed) + (index.astype(np.uint64) + np.uint64(1)) * _STEP
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def permute(index: np.ndarray, n: int, seed: int) -> np.ndarray:
    """A permutation of 0..n-1, one per seed, applied to `index` (int64, any number of them)."""
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    low, shift = np.uint64((1 << half) - 1), np.uint64(half)
    round_seeds = [int(s) for s in scatter(seed, np.arange(_ROUNDS))]

    def once(x: np.ndarray) -> np.ndarray:
        left, right = x >> shift, x & low
        for round_seed in round_seeds:
            left, right = right, left ^ (scatter(round_seed, right) & low)
        return (left << shift) | right

    place = once(index.astype(np.uint64))
    while (outside := place >= n).any():
        place[outside] = once(place[outside])
    return place.astype(np.int64)


class StepRows(NamedTuple):
    """The rows of one step: rows (n,) in 0..n_rows-1, their epochs (n,), and keys (n,) uint64 to draw from."""

    rows: np.ndarray
    epochs: np.ndarray
    keys: np.ndarray


class Rows(Protocol):
    """What a plan needs to know about rows."""

    @property
    def n_rows(self) -> int: ...
    @property
    def lengths(self) -> np.ndarray: ...


@dataclass(frozen=True)
class RowPlan:
    """The same number of rows in every step. n_rows: rows per epoch. stream: row i of a step continues row i of the
    step before.
    """

    n_rows: int
    batch_size: int
    seed: int
    stream: bool = False

    even = True
    """All steps have the same number of rows, and are split into equal parts."""

    @property
    def epoch_steps(self) -> float:
        """Steps per epoch."""
        return self.n_rows / self.batch_size

    def rows(self, step: int) -> StepRows:
        """The rows of step number `step` (from 0); it may cross the end of an epoch.

        A stream is read in text order at batch_size evenly spread positions. At the end of the text a position wraps
        around; the epoch stays 0, since later epochs split the text elsewhere.
        """
        index = np.arange(self.batch_size, dtype=np.int64)
        keys = scatter(seed_of(self.seed, "rows", step), index)
        if self.stream:
            return StepRows((index * self.n_rows // self.batch_size + step) % self.n_rows, np.zeros_like(index), keys)
        epochs, places = np.divmod(step * self.batch_size + index, self.n_rows)
        rows = np.empty_like(places)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            rows[here] = permute(places[here], self.n_rows, seed_of(self.seed, "epoch", int(epoch)))
        return StepRows(rows, epochs, keys)


@dataclass(frozen=True, eq=False)
class TokenPlan:
    """Rows of similar length per step, as many as have `batch_tokens` tokens including padding; `lengths` (n_rows,).

    Rows are sorted into buckets by length; in every epoch each bucket is shuffled and split into batches, and the
    batches of all buckets are shuffled. The number of batches per bucket is constant, so the batch of any step is found
    directly.
    """

    lengths: np.ndarray
    batch_tokens: int
    seed: int

    stream = False
    even = False

    @cached_property
    def _buckets(self) -> list[np.ndarray]:
        """The rows of each bucket, the longest first.

        Rare lengths join the next shorter bucket, unless that is much shorter: a small batch counts as much as a full
        one.
        """
        edges = _edges(int(self.lengths.max()))
        number = np.searchsorted(edges, self.lengths)
        buckets, waiting = list[np.ndarray](), np.empty(0, np.int64)
        for rows in (np.flatnonzero(number == one) for one in np.unique(number)[::-1]):
            if len(waiting):
                longest = int(self.lengths[waiting].max())
                if len(waiting) * longest >= self.batch_tokens or 3 * int(self.lengths[rows].max()) < 2 * longest:
                    buckets.append(waiting)
                    waiting = np.empty(0, np.int64)
            waiting = np.union1d(waiting, rows)
        return [*buckets, waiting]

    @cached_property
    def _batches(self) -> list[tuple[int, int, int]]:
        """(bucket, first, last) of every batch of an epoch: the range of the bucket's shuffled rows."""
        found = []
        for bucket, rows in enumerate(self._buckets):
            fit = max(1, self.batch_tokens // int(self.lengths[rows].max()))
            cuts = np.linspace(0, len(rows), -(-len(rows) // fit) + 1).round().astype(int).tolist()
            found += [(bucket, first, last) for first, last in itertools.pairwise(cuts)]
        return found

    @cached_property
    def batch_size(self) -> int:
        """Rows of the largest step."""
        return max(last - first for _, first, last in self._batches)

    @property
    def epoch_steps(self) -> float:
        return len(self._batches)

    def rows(self, step: int) -> StepRows:
        """The rows of a step; steps do not cross the end of an epoch."""
        epoch, place = divmod(step, len(self._batches))
        [batch] = permute(np.array([place]), len(self._batches), seed_of(self.seed, "batches", epoch)).tolist()
        bucket, first, last = self._batches[batch]
        rows, places = self._buckets[bucket], np.arange(first, last)
        rows = rows[permute(places, len(rows), seed_of(self.seed, "epoch", epoch, bucket))]
        return StepRows(rows, np.full(len(rows), epoch), scatter(seed_of(self.seed, "rows", step), places - first))


def _edges(longest: int) -> np.ndarray:
    """The largest length of each bucket, about an eighth apart."""
    edges = [8]
    while edges[-1] < longest:
        edges.append(max(edges[-1] + 1, edges[-1] * 9 // 8))
    return np.array(edges)


Plan = RowPlan | TokenPlan


def plan_of(train: Train, rows: Rows) -> Plan:
    """The plan of a recipe: a number of rows or of tokens per step."""
    if train.batch_tokens is not None:
        return TokenPlan(rows.lengths, train.batch_tokens, train.seed)
    return RowPlan(rows.n_rows, train.batch_size, train.seed, train.stream)

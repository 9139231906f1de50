"""Which rows of the text belong to which step: a pure function of (seed, step), so there is no state to save.

Row i of step s is number s * batch_size + i of an endless list of epochs; an epoch is a keyed permutation of all rows:
a Feistel network of six rounds over the next larger square of a power of two, walked until it lands on a row (Black and
Rogaway 2002, "Ciphers with arbitrary finite domains"). Integer arithmetic only, so the same on every machine and release.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mini_tf.seeds import seed_of

_STEP = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = 6


def scatter(seed: int, index: np.ndarray) -> np.ndarray:
    """Independent 64-bit numbers (uint64) for each index (n,): output number `index` of splitmix64 started at `seed`."""
    z = np.uint64(seed) + (index.astype(np.uint64) + np.uint64(1)) * _STEP
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def permute(index: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Where a permutation of 0..n-1, one of its own for each seed, sends `index` (any number of them, int64)."""
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


class Chosen(NamedTuple):
    """The rows of one step: rows (B,) in 0..n_rows-1, epochs (B,) that each belongs to, keys (B,) uint64 to draw from."""

    rows: np.ndarray
    epochs: np.ndarray
    keys: np.ndarray


@dataclass(frozen=True)
class Plan:
    """n_rows: rows an epoch. stream: row i of a step continues row i of the step before, for models that remember."""

    n_rows: int
    batch_size: int
    seed: int
    stream: bool = False

    def rows(self, step: int) -> Chosen:
        """What step number `step` (from 0) learns from; a step may hold the end of one epoch and the start of the next.

        A stream is read in the order of the text by batch_size readers who start evenly spread. Where the text ends a
        reader goes on at its beginning; the epoch stays 0, since later epochs cut the text elsewhere.
        """
        index = np.arange(self.batch_size, dtype=np.int64)
        keys = scatter(seed_of(self.seed, "rows", step), index)
        if self.stream:
            return Chosen((index * self.n_rows // self.batch_size + step) % self.n_rows, np.zeros_like(index), keys)
        epochs, places = np.divmod(step * self.batch_size + index, self.n_rows)
        rows = np.empty_like(places)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            rows[here] = permute(places[here], self.n_rows, seed_of(self.seed, "epoch", int(epoch)))
        return Chosen(rows, epochs, keys)

    def epochs(self, steps: int) -> float:
        """How often every row has been seen after so many steps."""
        return steps * self.batch_size / self.n_rows

"""Keyed random numbers and permutations: pure functions of a seed and an index, without state to save.

A permutation is a Feistel network of six rounds over the next larger power of four, with cycle walking (Black and
Rogaway 2002, "Ciphers with arbitrary finite domains"). Integer arithmetic only, so it is the same on every machine and
release.
"""

from functools import lru_cache

import numpy as np

_STEP = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = 6
_MAX_WHOLE = 1 << 12
"""Permutations of fewer are computed as a whole, which takes as long as a few indices, and kept."""


def splitmix64(seed: int, index: np.ndarray) -> np.ndarray:
    """Independent random uint64 for each index (n,): output `index` of the generator splitmix64 with this seed."""
    z: np.ndarray = np.uint64(seed) + (index.astype(np.uint64) + np.uint64(1)) * _STEP
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return z


def permute(index: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Apply the permutation of 0..n-1 with this seed to `index` (m,) int64."""
    return _whole(n, seed)[index] if n < _MAX_WHOLE else _permute(index, n, seed)


@lru_cache(maxsize=64)
def _whole(n: int, seed: int) -> np.ndarray:
    return _permute(np.arange(n), n, seed)


def _permute(index: np.ndarray, n: int, seed: int) -> np.ndarray:
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    low, shift = np.uint64((1 << half) - 1), np.uint64(half)
    round_seeds = [int(s) for s in splitmix64(seed, np.arange(_ROUNDS))]

    def once(x: np.ndarray) -> np.ndarray:
        left, right = x >> shift, x & low
        for round_seed in round_seeds:
            left, right = right, left ^ (splitmix64(round_seed, right) & low)
        joined: np.ndarray = (left << shift) | right
        return joined

    permuted = once(index.astype(np.uint64))
    while (outside := permuted >= n).any():
        permuted[outside] = once(permuted[outside])
    return permuted.astype(np.int64)

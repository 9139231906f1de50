"""Random choices that are the same on every machine and in every version of numpy."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Sampler:
    """Draws from the raw numbers of Philox, which are the same in every version of numpy."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Philox(key=seed)

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self._bits.random_raw()) % len(options)]

    def chance(self, percent: int) -> bool:
        return int(self._bits.random_raw()) % 100 < percent

    def pick_by_rank(self, options: Sequence[T], exponent: float) -> T:
        """An option with a probability proportional to rank^-exponent; the first has rank 1."""
        ends = _cumulative_weights(len(options), exponent)
        return options[bisect_right(ends, int(self._bits.random_raw()) % ends[-1])]

    def shuffle(self, options: Sequence[T]) -> list[T]:
        """A random order (Fisher-Yates)."""
        shuffled = list(options)
        for n in range(len(shuffled) - 1, 0, -1):
            other = int(self._bits.random_raw()) % (n + 1)
            shuffled[n], shuffled[other] = shuffled[other], shuffled[n]
        return shuffled


@cache
def _cumulative_weights(n: int, exponent: float) -> list[int]:
    """Whole numbers: the last bit of a power differs between machines."""
    return list(accumulate(max(1, round(rank**-exponent * 2**40)) for rank in range(1, n + 1)))

"""A count model that sees both neighbours: what a masked language model must beat at the same masked positions."""

from collections import Counter, defaultdict

import numpy as np

Counts = defaultdict[object, Counter[int]]


class BothNeighbours:
    """P(token | left, right) by counts of the training text, each level mixed with the one below as Witten and Bell
    (1991) do.

    pair of neighbours -> either neighbour alone (their mean) -> the token's own frequency -> uniform.
    """

    def __init__(self, ids: np.ndarray, vocabulary_size: int) -> None:
        self.size = vocabulary_size
        self.pair: Counts = defaultdict(Counter)
        self.left: Counts = defaultdict(Counter)
        self.right: Counts = defaultdict(Counter)
        self.alone = Counter(int(i) for i in ids)
        self.total = len(ids)
        for before, here, after in zip(ids[:-2].tolist(), ids[1:-1].tolist(), ids[2:].tolist(), strict=True):
            self.pair[before, after][here] += 1
            self.left[before][here] += 1
            self.right[after][here] += 1

    def probabilities(self, before: int, after: int) -> np.ndarray:
        """Over the whole vocabulary (V,)."""
        kinds = len(self.alone)
        own = (self._dense(self.alone) + kinds / self.size) / (self.total + kinds)
        sides = (self._mixed(self.left[before], own) + self._mixed(self.right[after], own)) / 2
        return self._mixed(self.pair[before, after], sides)

    def _mixed(self, counts: Counter[int], below: np.ndarray) -> np.ndarray:
        return (self._dense(counts) + len(counts) * below) / (counts.total() + len(counts)) if counts else below

    def _dense(self, counts: Counter[int]) -> np.ndarray:
        dense = np.zeros(self.size)
        dense[list(counts)] = list(counts.values())
        return dense

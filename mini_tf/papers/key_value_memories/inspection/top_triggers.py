"""The prefixes with the largest coefficients of many memories, from a stream of batches, in constant memory."""

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

SLICE = 512
"""Tokens that are compared at once: of the first ones, every positive coefficient is a candidate."""
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
"""Of the finalizer of splitmix64 (Steele et al. 2014, "Fast splittable pseudorandom number generators")."""


@dataclass(frozen=True, eq=False)
class TopTriggers:
    """The k distinct prefixes with the largest positive coefficient of each of n memories, in descending order.

    Of equal coefficients the earlier token comes first. Equal prefixes have equal coefficients, up to rounding, and the
    first one counts. coefficients (n, k): 0 = none; tokens (n, k): the number of the prefix's last token, -1 = none.
    """

    n: int
    k: int
    coefficients: np.ndarray = field(init=False)
    tokens: np.ndarray = field(init=False)
    _prefixes: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        for name, empty, dtype in (
            ("coefficients", 0, np.float64),
            ("tokens", -1, np.int64),
            ("_prefixes", 0, np.uint64),
        ):
            object.__setattr__(self, name, np.full((self.n, self.k), empty, dtype))

    def add(self, coefficients: Tensor, tokens: np.ndarray, prefixes: np.ndarray) -> None:
        """Coefficients (T, n) at tokens (T,), whose numbers ascend from call to call; prefixes (T,): hashes."""
        for first in range(0, len(tokens), SLICE):
            part = coefficients[first : first + SLICE]
            least = part.new_tensor(self.coefficients[:, -1])
            at, memories = (part > least).nonzero(as_tuple=True)
            if len(at):
                rows = first + at.cpu().numpy()
                self._merge(
                    memories.cpu().numpy(), part[at, memories].cpu().double().numpy(), tokens[rows], prefixes[rows]
                )

    def _merge(self, memories: np.ndarray, coefficients: np.ndarray, tokens: np.ndarray, prefixes: np.ndarray) -> None:
        """Merge candidates (C,) into the entries of their memories."""
        changed, groups = np.unique(memories, return_inverse=True)
        old = np.repeat(np.arange(len(changed)), self.k)
        groups = np.concatenate([old, groups])
        coefficients = np.concatenate([self.coefficients[changed].ravel(), coefficients])
        tokens = np.concatenate([self.tokens[changed].ravel(), tokens])
        prefixes = np.concatenate([self._prefixes[changed].ravel(), prefixes])
        order = np.lexsort((tokens, prefixes, groups))
        order = order[tokens[order] >= 0]
        is_first = np.ones(len(order), bool)
        is_first[1:] = (np.diff(groups[order]) != 0) | (prefixes[order][1:] != prefixes[order][:-1])
        order = order[is_first]
        order = order[np.lexsort((tokens[order], -coefficients[order], groups[order]))]
        groups = groups[order]
        rank = np.arange(len(groups)) - np.searchsorted(groups, groups)
        order, groups, rank = (array[rank < self.k] for array in (order, groups, rank))
        for own, given, empty in (
            (self.coefficients, coefficients, 0),
            (self.tokens, tokens, -1),
            (self._prefixes, prefixes, 0),
        ):
            merged = np.full((len(changed), self.k), empty, own.dtype)
            merged[groups, rank] = given[order]
            own[changed] = merged


def prefix_hashes(ids: np.ndarray, context: np.ndarray | None = None) -> np.ndarray:
    """(B, L) uint64: a hash of the ids of a row up to each token, and of its context (B, M; -1 = padding)."""
    state = np.zeros(len(ids), np.uint64)
    if context is not None:
        state = ~prefix_hashes(context)[np.arange(len(ids)), (context >= 0).sum(axis=1) - 1]
    found = np.empty(ids.shape, np.uint64)
    for column, token in enumerate((ids + 1).astype(np.uint64).T):
        state = state * np.uint64(0x9E3779B97F4A7C15) + token
        for shift, multiplier in zip((np.uint64(30), np.uint64(27)), _MULTIPLIERS, strict=True):
            state = (state ^ (state >> shift)) * multiplier
        state = state ^ (state >> np.uint64(31))
        found[:, column] = state
    return found

"""Truncation of token ids between characters: a character of several byte tokens is kept or dropped as a whole."""

import numpy as np
from numpy.typing import ArrayLike

from mini_tf.data.tokenization.vocabulary import Vocabulary

MAX_INSIDE = 3
"""Tokens of a character that do not begin it, at most: UTF-8 has up to four bytes."""


def between_characters(vocabulary: Vocabulary, ids: np.ndarray, cuts: ArrayLike, limits: ArrayLike) -> np.ndarray:
    """Cuts of a sequence of ids, each moved towards its limit, at most up to it, out of a character.

    A cut c is between ids[c - 1] and ids[c]; all of one call have their limits on the same side. Where nothing else
    would be kept, up to the limit, a cut stays: then a single character is longer than the context.
    """
    cuts, limits = np.asarray(cuts), np.asarray(limits)
    if not vocabulary.inside_characters:
        return cuts
    inside, moved = np.fromiter(vocabulary.inside_characters, int), cuts
    for _ in range(MAX_INSIDE):
        splits = np.isin(ids[np.minimum(moved, len(ids) - 1)], inside) & (moved < len(ids))
        moved = moved + np.where(splits, np.sign(limits - moved), 0)
    return np.where(moved == limits, cuts, moved)


def first_tokens(vocabulary: Vocabulary, ids: np.ndarray, n: int) -> int:
    """How many of at most the first `n` ids are kept."""
    return int(between_characters(vocabulary, ids, n, 0)) if n < len(ids) else len(ids)


def last_tokens(vocabulary: Vocabulary, ids: np.ndarray, n: int) -> int:
    """How many of at most the last `n` ids are kept."""
    return len(ids) - int(between_characters(vocabulary, ids, len(ids) - n, len(ids))) if n < len(ids) else len(ids)

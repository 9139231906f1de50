"""Metrics of similarities of texts: how well they rank pairs with a score, and how often a positive is the nearest."""

import math
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

import numpy as np

from mini_tf.scores.label_scores import number_scores

ROWS = 1024
"""Anchors whose similarities are computed at once."""


class Contrast(NamedTuple):
    """Anchors and the candidates among which each has to find its positive. Equal numbers are equal texts.

    anchors (N,); candidates (C,): texts. owners (C,): the anchor that a candidate is the positive of; of a hard
    negative a number that no anchor has. positives (N,): the candidate that is the positive of each anchor.
    """

    anchors: np.ndarray
    candidates: np.ndarray
    owners: np.ndarray
    positives: np.ndarray

    def compared(self, anchors: slice = slice(None)) -> np.ndarray:
        """(n, C), True for the positive of an anchor and for its negatives, which are all other candidates but false
        ones: with the text of the positive, of the anchor, or of another positive of the same anchor.
        """
        texts, positives = self.anchors[anchors], self.positives[anchors]
        false = (self.candidates == texts[:, None]) | (self.candidates == self.candidates[positives][:, None])
        of_anchor: dict[int, set[int]] = {}
        for owner, text in zip(self.owners.tolist(), self.candidates.tolist(), strict=True):
            of_anchor.setdefault(owner, set()).add(text)
        for row, text in zip(false, texts.tolist(), strict=True):
            if len(of_anchor[text]) > 1:
                row |= np.isin(self.candidates, [*of_anchor[text]])
        false[np.arange(len(false)), positives] = False
        compared: np.ndarray = ~false
        return compared


def numbered(texts: Iterable[Hashable]) -> np.ndarray:
    """(T,): a number for each text, equal for equal ones."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts])


def contrast_of(texts: np.ndarray, is_anchor: np.ndarray, is_positive: np.ndarray) -> Contrast:
    """Of texts (T,) in order: each anchor, followed by its positive and its hard negatives."""
    at = np.flatnonzero(~is_anchor)
    owners = texts[is_anchor][np.cumsum(is_anchor)[at] - 1]
    return Contrast(texts[is_anchor], texts[at], np.where(is_positive[at], owners, -1), np.flatnonzero(is_positive[at]))


def retrieval_accuracy(contrast: Contrast, similarities: Callable[[slice], np.ndarray]) -> float:
    """The share of the anchors whose positive is nearer than every negative; a tie is none.

    similarities: (n, C) of some of the anchors to all candidates.
    """
    n_correct, n = 0, len(contrast.anchors)
    for first in range(0, n, ROWS):
        part = slice(first, first + ROWS)
        found, at = similarities(part), contrast.positives[part]
        rows = np.arange(len(found))
        of_positive = found[rows, at]
        others = np.where(contrast.compared(part), found, -np.inf)
        others[rows, at] = -np.inf
        n_correct += int((others.max(1) < of_positive).sum())
    return n_correct / n


def pair_scores(scores: np.ndarray, similarities: np.ndarray) -> dict[str, float]:
    """spearman (-1 to 1) of pairs (N,); without it if it is undefined, or scikit-learn is missing."""
    spearman = number_scores(scores, similarities).get("spearman", math.nan)
    return {"spearman": spearman} if math.isfinite(spearman) else {}

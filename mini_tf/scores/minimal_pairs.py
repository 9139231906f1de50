"""Accuracy on minimal pairs: the share of pairs whose acceptable sentence has the higher log-probability."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from mini_tf.scores.intervals import wilson_interval

METRICS = ("pairs.accuracy", "pairs.difference", "pairs.n", "pairs.accuracy.")
"""Names in --assert; the last one is completed by a paradigm (UID)."""


class PairScores(NamedTuple):
    """accuracy: share of n pairs, a tie counts half; low, high: its 95 % interval (Wilson).

    difference: mean log-probability of the acceptable sentence minus that of the other, in nats.
    """

    accuracy: float
    low: float
    high: float
    difference: float
    ties: int
    n: int


def pair_scores(good: Sequence[float], bad: Sequence[float]) -> PairScores:
    """Scores of at least one pair."""
    differences = [one - other for one, other in zip(good, bad, strict=True)]
    ties, n = differences.count(0.0), len(differences)
    right = sum(difference > 0 for difference in differences) + ties / 2
    return PairScores(right / n, *wilson_interval(right, n), fmean(differences), ties, n)

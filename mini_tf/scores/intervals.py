"""Confidence intervals of means (Student's t) and of shares (Wilson). Needs no optional package.

Sources: Student 1908, Biometrika 6; Welch 1947, Biometrika 34; Wilson 1927, Journal of the American Statistical
Association 22; quantile of t: Abramowitz and Stegun 1964, formulas 26.7.3 and 26.7.4.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, variance
from typing import NamedTuple

CONFIDENCE = 0.95


class Mean(NamedTuple):
    """A mean of n values. half: half the width of its 95 % interval, None for fewer than two values."""

    mean: float
    half: float | None
    n: int


def mean_interval(values: Sequence[float]) -> Mean:
    """The mean of at least one value, with Student's interval."""
    n = len(values)
    half = t_quantile(n - 1) * math.sqrt(variance(values) / n) if n > 1 else None
    return Mean(fmean(values), half, n)


def difference_interval(first: Sequence[float], second: Sequence[float]) -> Mean:
    """The mean of `second` minus that of `first`, independent samples, with Welch's interval; n: of the smaller one.

    The degrees of freedom are rounded down, which widens the interval.
    """
    difference, n = fmean(second) - fmean(first), min(len(first), len(second))
    if n < 2:
        return Mean(difference, None, n)
    parts = [variance(values) / len(values) for values in (first, second)]
    if not sum(parts):
        return Mean(difference, 0.0, n)
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True)
    )
    return Mean(difference, t_quantile(max(1, math.floor(freedom + 1e-9))) * math.sqrt(sum(parts)), n)


def wilson_interval(successes: float, n: int) -> tuple[float, float]:
    """The interval of a share of n independent trials; ties may count as half a success."""
    z, share = NormalDist().inv_cdf((1 + CONFIDENCE) / 2), successes / n
    center = share + z**2 / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(0.0, (center - half) / (1 + z**2 / n)), min(1.0, (center + half) / (1 + z**2 / n))


def t_quantile(freedom: int) -> float:
    """The t with P(|T| < t) = 0.95 for Student's distribution with `freedom` degrees of freedom, an integer above 0."""
    low, high = 0.0, math.pi / 2
    for _ in range(80):  # bisection over the angle atan(t / sqrt(freedom))
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < CONFIDENCE else (low, middle)
    return math.tan((low + high) / 2) * math.sqrt(freedom)


def _within(angle: float, freedom: int) -> float:
    """P(|T| < sqrt(freedom) tan(angle))."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = sine * cosine if odd else sine
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom, 2):
        term *= (k - 1) / k * cosine**2
        total += term
    return (angle + total) * 2 / math.pi if odd else total


PAIR_METRICS = ("pairs.accuracy", "pairs.difference", "pairs.n", "pairs.accuracy.")
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
    differences = [score - other for score, other in zip(good, bad, strict=True)]
    ties, n = differences.count(0.0), len(differences)
    right = sum(difference > 0 for difference in differences) + ties / 2
    return PairScores(right / n, *wilson_interval(right, n), fmean(differences), ties, n)

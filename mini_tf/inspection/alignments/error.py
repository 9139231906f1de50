"""Alignment error rate (AER) of all heads; the best head is chosen on half of the pairs and evaluated on the others.

The minimum over many heads is biased on the pairs it was chosen by. Source: Och and Ney 2003, "A systematic comparison
of various statistical alignment models", section 4.2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mini_tf.data.examples import Pair
from mini_tf.inspection.alignments.alignment import SHIFTS, HeadShift, PairAlignment, alignment_of
from mini_tf.inspection.alignments.files import AlignmentPoint, GoldAlignment, diagonal
from mini_tf.inspection.head_selection import HeadIndex, HeadSelection


def error_rate(alignments: Iterable[frozenset[AlignmentPoint]], gold: Iterable[GoldAlignment]) -> float | None:
    """AER = 1 - (|A & S| + |A & P|) / (|A| + |S|), counted over all pairs; None if A and S are empty."""
    hits = total = 0
    for found, (sure, possible) in zip(alignments, gold, strict=True):
        hits += len(found & sure) + len(found & possible)
        total += len(found) + len(sure)
    return 1 - hits / total if total else None


class GoldPair(NamedTuple):
    """An aligned pair with a gold alignment."""

    pair: Pair
    aligned: PairAlignment
    gold: GoldAlignment


@dataclass(frozen=True)
class HeadScore:
    """A head with its sharpness over all pairs, and its AER on the pairs that choose the best head, if any."""

    head: HeadShift
    sharpness: float
    aer: float | None


@dataclass(frozen=True)
class HeadComparison:
    """All heads, the best one, and the AER of the best and of the diagonal on the other pairs (None without gold).

    The best has the lowest AER on `chosen_on` pairs; without gold alignments, the largest sharpness.
    """

    heads: list[HeadScore]
    best: HeadScore
    aer: float | None
    diagonal: float | None
    chosen_on: int
    reported_on: int


def compare_heads(
    pairs: Sequence[Pair],
    found: Sequence[PairAlignment | None],
    gold: Sequence[GoldAlignment | None],
    heads: Sequence[HeadShift],
) -> HeadComparison:
    """Compare `heads` on pairs of which at least one was aligned.

    Of the pairs with gold alignments, the 1st, 3rd, ... choose the head and the 2nd, 4th, ... evaluate it; a single
    pair evaluates.
    """
    aligned = [one for one in found if one is not None]
    gold_pairs = [
        GoldPair(pair, one, points)
        for pair, one, points in zip(pairs, found, gold, strict=True)
        if one is not None and points is not None
    ]
    choosing, evaluating = (gold_pairs[::2], gold_pairs[1::2]) if len(gold_pairs) > 1 else ([], gold_pairs)
    sharpness = np.mean([one.sharpness for one in aligned], axis=0)
    scores = [HeadScore(head, float(sharpness[head]), _aer(choosing, head)) for head in heads]
    best = min(scores, key=lambda score: (2.0 if score.aer is None else score.aer, -score.sharpness))
    baseline = [diagonal(len(one.pair.source.split()), len(one.pair.target.split())) for one in evaluating]
    diagonal_aer = error_rate(baseline, (one.gold for one in evaluating))
    return HeadComparison(scores, best, _aer(evaluating, best.head), diagonal_aer, len(choosing), len(evaluating))


def _aer(pairs: Sequence[GoldPair], head: HeadShift) -> float | None:
    return error_rate((alignment_of(one.aligned.aligned, head) for one in pairs), (one.gold for one in pairs))


def head_shifts(shape: Sequence[int], selection: HeadSelection, shift: int | None) -> list[HeadShift]:
    """The selected heads of (layers, heads), at one or both shifts. Raises UsageFault for missing heads."""
    n_layers, n_heads = shape[:2]
    selected = selection.select(
        [HeadIndex("cross", layer, head) for layer in range(n_layers) for head in range(n_heads)]
    )
    shifts = SHIFTS if shift is None else (shift,)
    return [HeadShift(index.layer, index.head, one) for index in sorted(selected) for one in shifts]

"""How far hard alignments are from those of people, over every head: chosen on one half of the pairs, judged on the other.

The best of many heads looks better on the pairs it was chosen by than it is; so the choice and the figure do not share a pair.
Source: Och and Ney 2003, "A systematic comparison of various statistical alignment models", section 4.2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mini_tf.data.examples import Pair
from mini_tf.inspection.alignments.alignment import SHIFTS, Aligned, HeadShift, links_at
from mini_tf.inspection.alignments.links import Gold, Link, diagonal
from mini_tf.inspection.choice import Choice, HeadPlace


def error_rate(links: Iterable[frozenset[Link]], gold: Iterable[Gold]) -> float | None:
    """1 - (|A & S| + |A & P|) / (|A| + |S|), all counted over all pairs; None where there is no link at all."""
    hits = total = 0
    for found, (sure, possible) in zip(links, gold, strict=True):
        hits += len(found & sure) + len(found & possible)
        total += len(found) + len(sure)
    return 1 - hits / total if total else None


class Judged(NamedTuple):
    """A pair that was aligned and has gold links."""

    pair: Pair
    aligned: Aligned
    gold: Gold


@dataclass(frozen=True)
class Scored:
    """A head: its sharpness over all pairs, and its error rate on the pairs that the choice goes by; None where it goes by none."""

    place: HeadShift
    sharpness: float
    aer: float | None


@dataclass(frozen=True)
class Sweep:
    """Every head, the best of them, and what the best and the diagonal come to on the other pairs (None without gold links).

    The best has the least error rate on the `chosen_on` pairs; where there are none, the largest sharpness.
    """

    heads: list[Scored]
    best: Scored
    aer: float | None
    diagonal: float | None
    chosen_on: int
    reported_on: int


def sweep(pairs: Sequence[Pair], found: Sequence[Aligned | None], gold: Sequence[Gold | None], places: Sequence[HeadShift]) -> Sweep:
    """Compare `places` over pairs of which one at least was aligned.

    Of the pairs with gold links the first, third, ... choose and the second, fourth, ... judge; of a single one it is only judged.
    """
    there = [one for one in found if one is not None]
    judged = [
        Judged(pair, one, links) for pair, one, links in zip(pairs, found, gold, strict=True) if one is not None and links is not None
    ]
    choosing, judging = (judged[::2], judged[1::2]) if len(judged) > 1 else ([], judged)
    sharpness = np.mean([one.sharpness for one in there], axis=0)
    heads = [Scored(place, float(sharpness[place]), _aer(choosing, place)) for place in places]
    best = min(heads, key=lambda head: (2.0 if head.aer is None else head.aer, -head.sharpness))
    straight = error_rate((diagonal(len(j.pair.source.split()), len(j.pair.target.split())) for j in judging), (j.gold for j in judging))
    return Sweep(heads, best, _aer(judging, best.place), straight, len(choosing), len(judging))


def _aer(judged: Sequence[Judged], place: HeadShift) -> float | None:
    return error_rate((links_at(one.aligned.links, place) for one in judged), (one.gold for one in judged))


def positions_of(shape: Sequence[int], choice: Choice, shift: int | None) -> list[HeadShift]:
    """The heads of (layers, heads) that are wanted, at one shift or at both; UsageFault where something asked for does not exist."""
    n_layers, n_heads = shape[:2]
    wanted = choice.of([HeadPlace("cross", layer, head) for layer in range(n_layers) for head in range(n_heads)])
    shifts = SHIFTS if shift is None else (shift,)
    return [HeadShift(place.layer, place.head, one) for place in sorted(wanted) for one in shifts]

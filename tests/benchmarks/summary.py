"""What the measurements of a contest come to: medians, ratios of neighbours in time, and whether floors are met."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .contest import Contest, Side
from .measuring import Record, key_of

FLOORS = {
    ("step 4x128", "plain torch"): 0.9,
    ("step encoder", "plain torch"): 0.9,
    ("generation 4x128, batch 1", "plain torch, cached"): 0.7,
    ("generation 4x128, batch 1", "plain torch, uncached"): 1.0,
    ("startup: --help", "import torch"): 3.0,
    ("startup: first step", "import torch"): 0.25,
}
"""(contest, side): how many times as good as that side minitf must be (--guard), with room for noise and for other
machines.
"""


@dataclass(frozen=True)
class Row:
    """One side. spread: (largest - smallest) / median, of several runs. ratio: how many times better minitf is; None
    for minitf itself.

    absent: why there is nothing to show. counts: False where the loss that had to be reached was not.
    """

    side: Side
    median: float | None = None
    spread: float | None = None
    ratio: float | None = None
    mfu: float | None = None
    counts: bool = True
    details: tuple[str, ...] = ()
    absent: str = ""


def rows(contest: Contest, record: Record, runs: int, peak: float | None) -> list[Row]:
    """A row for each side, in order. peak: FLOP/s of the machine."""
    measured = {side.name: record.runs(side, runs) for side in contest.sides}
    counting = {name: _reached(found, contest.reach) for name, found in measured.items()}
    own = next((side for side in contest.sides if side.own and counting[side.name]), None)
    return [_row(contest, side, own, measured, record, runs, peak, counting[side.name]) for side in contest.sides]


def _row(
    contest: Contest,
    side: Side,
    own: Side | None,
    measured: dict[str, list[Any]],
    record: Record,
    runs: int,
    peak: float | None,
    counts: bool,
) -> Row:
    found = [figures for figures in measured[side.name] if figures is not None]
    if not found:
        failed = next((record.faults[key] for run in range(runs) if (key := key_of(side, run)) in record.faults), "")
        why = f"not measured: {side.missing}" if side.missing else f"FAILED: {failed}" if failed else "not measured"
        return Row(side, absent=why)
    values = [float(figures[contest.figure]) for figures in found]
    median = statistics.median(values)
    flops = [figures["flops"] for figures in found if "flops" in figures]
    return Row(
        side,
        median,
        spread=(max(values) - min(values)) / abs(median) if len(values) > 1 and median else None,
        ratio=None if own is None or side.own else _ratio(contest, measured[own.name], measured[side.name]),
        mfu=statistics.median(flops) / peak if flops and peak else None,
        counts=counts or not side.own,  # a peer's time counts whatever its loss
        details=tuple(_details(contest, found)),
    )


def _ratio(contest: Contest, own: Sequence[Any], peer: Sequence[Any]) -> float | None:
    """The median over the runs that both sides have of how many times better the own side is."""
    pairs = [(float(a[contest.figure]), float(b[contest.figure])) for a, b in zip(own, peer, strict=True) if a and b]
    return statistics.median(a / b if contest.more else b / a for a, b in pairs) if pairs else None


def _reached(found: Sequence[Any], limit: float | None) -> bool:
    losses = [f["loss"] for f in found if f is not None and "loss" in f]
    return limit is None or not losses or statistics.median(losses) <= limit


def _details(contest: Contest, found: Sequence[Any]) -> list[str]:
    """Further figures that the contest wants told, as medians with their range; and what a side says of itself."""
    told = []
    for name in contest.tell:
        values = [float(f[name]) for f in found if f is not None and name in f]
        if values:
            extent = (
                f" ({min(values):.4g} to {max(values):.4g})" if len(values) > 1 and max(values) > min(values) else ""
            )
            told.append(f"{name} {statistics.median(values):.4g}{extent}")
    said = [str(f["detail"]) for f in found if f is not None and f.get("detail")]
    return told + said[:1]


def faults(measured: Iterable[tuple[Contest, Sequence[Row]]]) -> Iterator[str]:
    """What fell under its floor; a floor whose sides were not measured is a fault too, if its contest took place."""
    for contest, contest_rows in measured:
        by_name = {row.side.name: row for row in contest_rows}
        for (name, side), floor in FLOORS.items():
            if name == contest.name:
                ratio = by_name[side].ratio if side in by_name else None
                if ratio is None:
                    yield f"{name}: no ratio to {side}; it must be at least {floor:g}"
                elif ratio < floor:
                    yield f"{name}: minitf is {ratio:.2f} times as good as {side}; it must be at least {floor:g}"

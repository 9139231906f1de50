"""The regression guard: ratios to plain torch on the same machine that must not fall under these floors.

The floors leave room for noise and for other machines; the goals are in the benchmarks themselves.
"""

from collections.abc import Iterable, Iterator, Sequence

from .contest import Contest
from .summary import Row

FLOORS = {
    ("step 4x128", "plain torch"): 0.9,
    ("step encoder", "plain torch"): 0.9,
    ("generation 4x128, batch 1", "plain torch, cached"): 0.7,
    ("generation 4x128, batch 1", "plain torch, uncached"): 1.0,
    ("startup: --help", "import torch"): 3.0,
    ("startup: first step", "import torch"): 0.25,
}
"""(contest, side): how many times as good as that side minitf must be."""


def faults(measured: Iterable[tuple[Contest, Sequence[Row]]]) -> Iterator[str]:
    """What fell under its floor; a floor whose sides were not measured is a fault too, if its contest took place."""
    for contest, rows in measured:
        by_name = {row.side.name: row for row in rows}
        for (name, side), floor in FLOORS.items():
            if name == contest.name:
                ratio = by_name[side].ratio if side in by_name else None
                if ratio is None:
                    yield f"{name}: no ratio to {side}; it must be at least {floor:g}"
                elif ratio < floor:
                    yield f"{name}: minitf is {ratio:.2f} times as good as {side}; it must be at least {floor:g}"

"""The tables that people read: one a contest, and what was not measured."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .contest import Contest
from .measuring import spoken
from .summary import Row

HEADS = ("side", "median", "spread", "minitf is", "MFU", "remarks")


def show(console: Console, contest: Contest, rows: Sequence[Row]) -> None:
    """The sides of one contest, and the command of each below."""
    better = "more is better" if contest.more else "less is better"
    table = Table(*HEADS, title=escape(f"{contest.name}: {contest.unit}, {better}"), title_justify="left")
    for row in rows:
        table.add_row(*(escape(cell) for cell in cells(row)))
    console.print(table)
    for note in contest.notes:
        console.print(escape(f"  {note}"), highlight=False)
    for row in rows:
        if not row.side.missing:
            console.print(
                escape(f"  {row.side.name}: {spoken(row.side)}"), style="dim", highlight=False, soft_wrap=True
            )
    console.print()


def cells(row: Row) -> tuple[str, ...]:
    """One side as words. `minitf is 1.20x`: that many times as good as this side."""
    remarks = [
        row.absent,
        *row.details,
        "" if row.side.equal else "not equal work",
        "" if row.counts else "did not reach the loss, so does not count",
    ]
    return (
        row.side.name,
        "" if row.median is None else number(row.median),
        "" if row.spread is None else f"{100 * row.spread:.0f} %",
        "" if row.ratio is None else f"{row.ratio:.2f}x",
        "" if row.mfu is None else f"{100 * row.mfu:.0f} %",
        "; ".join(remark for remark in remarks if remark),
    )


def number(value: float) -> str:
    """Four digits, or all of those before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def show_unmeasured(
    console: Console, contests: Iterable[tuple[Contest, Sequence[Row]]], further: Sequence[str]
) -> None:
    """Everything that these figures do not tell, and why."""
    lines = [
        f"{contest.name}: {row.side.name}: {row.absent}" for contest, rows in contests for row in rows if row.absent
    ]
    if lines or further:
        console.print("NOT MEASURED", style="bold")
    for line in [*lines, *further]:
        console.print(escape(f"  {line}"), highlight=False, soft_wrap=True)

"""What a page shows: scenes (a text, a checkpoint, a run) of maps and tables; one or two are open at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import NamedTuple

from mini_tf.drawing.panel import Curves, Panel, Scale

REMEDIES = "give fewer texts, or shorter ones, or write -o FILE.json"


Cell = str | float | None


class PageTable(NamedTuple):
    """A table, as `drawing.terminal.table` shows it; without headers, paragraphs: one cell a row."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, eq=False)
class PageMap:
    """A map. name: in the address of the page; the other fields are of an attention head.

    summary: a sentence about it.
    """

    panel: Panel
    name: str
    kind: str = ""
    layer: int | None = None
    head: int | None = None
    role: str = ""
    entropy: float | None = None
    summary: str = ""


@dataclass(frozen=True, eq=False)
class Scene:
    """Maps and tables. at: what tells it from other scenes, such as {"text": "a cat", "step": "40"}."""

    at: Mapping[str, str]
    maps: Sequence[PageMap] = ()
    tables: Sequence[PageTable] = ()


@dataclass(frozen=True, eq=False)
class Page:
    """facts: lines below the title. row, column: what a row and a column of a map is called.

    slider: the key of `Scene.at` that is chosen by a slider, a number; opens: the part of the address to open with;
    remedies: three ways to a smaller page.
    """

    title: str
    scenes: Sequence[Scene]
    scale: Scale = field(default_factory=Scale)
    facts: Sequence[str] = ()
    notes: Sequence[str] = ()
    tables: Sequence[PageTable] = ()
    curves: Sequence[Curves] = ()
    row: str = "row"
    column: str = "column"
    slider: str = ""
    opens: str = ""
    remedies: str = field(default=REMEDIES)


Points = Mapping[float, float]
"""y by x."""


def curves_of(title: str, x_label: str, points: Mapping[str, Points]) -> Curves:
    """Lines that have points of their own; without those that have none."""
    x = sorted({at for line in points.values() for at in line})
    lines = {name: [line.get(at, nan) for at in x] for name, line in points.items() if line}
    return Curves(title, x, x_label, title, lines)

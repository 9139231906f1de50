"""Data of plots: numbers and labels, for the terminal and for files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Scale:
    """Color scale of a map from `low` to `high`; values outside are clipped. A diverging scale is symmetric about 0."""

    low: float = 0.0
    high: float = 1.0
    diverging: bool = False
    label: str = "attention weight"
    open_end: bool = False
    """Some values exceed `high`; files have a note."""

    @property
    def ends(self) -> tuple[float, float]:
        """Values of the first and the last color."""
        largest = max(abs(self.low), abs(self.high))
        low, high = (-largest, largest) if self.diverging else (self.low, self.high)
        return low + 0.0, high + 0.0  # no negative zero

    @property
    def in_hundredths(self) -> bool:
        """Whether numbers are printed in hundredths: up to 2, the maximum difference of two cosines."""
        return max(map(abs, self.ends)) <= 2

    def fraction(self, value: float) -> float:
        """Relative position of a value between the ends, 0 to 1."""
        low, high = self.ends
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0


@dataclass(frozen=True)
class Marks:
    """Marked cells (row, column) of a map, with squares, rings or dotted rings, and the meanings of the three marks."""

    squares: frozenset[tuple[int, int]] = frozenset()
    rings: frozenset[tuple[int, int]] = frozenset()
    dotted_rings: frozenset[tuple[int, int]] = frozenset()
    meanings: tuple[str, str, str] = ("", "", "")

    @property
    def transposed(self) -> "Marks":
        """Of rows as columns."""
        squares, rings, dotted_rings = (
            frozenset((column, row) for row, column in cells) for cells in (self.squares, self.rings, self.dotted_rings)
        )
        return Marks(squares, rings, dotted_rings, self.meanings)

    def legend(self, signs: tuple[str, str, str]) -> str:
        """Legend of the used marks, shown as these signs, in one line."""
        used = zip((self.squares, self.rings, self.dotted_rings), signs, self.meanings, strict=True)
        return ", ".join(f"{sign}: {meaning}" for cells, sign, meaning in used if cells)


@dataclass(frozen=True, eq=False)
class Panel:
    """One heat map, `values` (rows, columns); NaN cells are blank.

    note: a sentence about rows and columns; tokens: labels are tokens, with visible spaces, else captions. In a file,
    sides: titles of the axes, "query", "key"; group: heading of the maps that it stands among; line: maps with the same
    number stand side by side (the heads of a layer), None: an almost square arrangement.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: "np.ndarray"
    note: str = ""
    tokens: bool = True
    marks: Marks = Marks()
    sides: tuple[str, str] = ("", "")
    group: str = ""
    line: int | None = None

    def __post_init__(self) -> None:
        _check_shape("values", self.values, (len(self.rows), len(self.columns)))

    @property
    def transposed(self) -> "Panel":
        """Rows as columns, and columns as rows."""
        sides, marks = (self.sides[1], self.sides[0]), self.marks.transposed
        return replace(self, rows=self.columns, columns=self.rows, values=self.values.T, sides=sides, marks=marks)


@dataclass(frozen=True, eq=False)
class HeadGrid:
    """Grid of heads: `values` (rows, columns) as colors, and a letter per cell; legend: meanings of the letters."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: "np.ndarray"
    letters: Sequence[Sequence[str]]
    legend: Mapping[str, str] = field(default_factory=dict)
    scale: Scale = Scale(label="entropy")

    def __post_init__(self) -> None:
        _check_shape("values", self.values, (len(self.rows), len(self.columns)))
        if [len(row) for row in self.letters] != [len(self.columns)] * len(self.rows):
            raise ValueError("letters: there must be one per cell")


@dataclass(frozen=True, eq=False)
class QueryWeights:
    """Attention weights (heads, tokens) of one query in all heads.

    query: its text; query_index: its index among the tokens, None for cross-attention; heads: layer and head, "L0",
    "H1"; text: shown below the title, and notes below that.
    """

    title: str
    query: str
    query_index: int | None
    tokens: Sequence[str]
    weights: "np.ndarray"
    heads: Sequence[tuple[str, str]]
    text: str = ""
    notes: Sequence[str] = ()
    scale: Scale = Scale()

    def __post_init__(self) -> None:
        _check_shape("weights", self.weights, (len(self.heads), len(self.tokens)))


@dataclass(frozen=True)
class Curves:
    """Lines over a common x; NaN is a gap. logarithmic: both axes, powers of two on the x axis."""

    title: str
    x: Sequence[float]
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[float]]
    logarithmic: bool = False

    def __post_init__(self) -> None:
        if any(len(line) != len(self.x) for line in self.lines.values()):
            raise ValueError("lines: each must have a value for each x")


@dataclass(frozen=True, eq=False)
class PanelGrid:
    """One or more panels on one scale. text: shown below the title, and notes below that."""

    panels: Sequence[Panel]
    scale: Scale
    title: str
    text: str = ""
    notes: Sequence[str] = ()


def _check_shape(name: str, values: "np.ndarray", shape: tuple[int, int]) -> None:
    if values.shape != shape:
        raise ValueError(f"{name}: {values.shape} must be (rows, columns) = {shape}")

"""What can be drawn: numbers with the words that belong to them. The same panel goes to a terminal and to a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Scale:
    """What the colours of a map mean: from `low` to `high`; what lies outside is drawn as the nearest end.

    A diverging scale reaches equally far to both sides of zero, and zero has a colour of its own.
    """

    low: float = 0.0
    high: float = 1.0
    diverging: bool = False
    label: str = "attention weight"
    open_end: bool = False
    """Values above `high` occur; files say so."""

    @property
    def ends(self) -> tuple[float, float]:
        """The values of the first and the last colour."""
        far = max(abs(self.low), abs(self.high))
        low, high = (-far, far) if self.diverging else (self.low, self.high)
        return low + 0.0, high + 0.0  # no negative zero

    @property
    def in_hundredths(self) -> bool:
        """Whether its values are told apart by hundredths: up to 2, which a cosine less another comes to."""
        return max(map(abs, self.ends)) <= 2

    def fraction(self, value: float) -> float:
        """Where a value stands between the ends, 0 to 1."""
        low, high = self.ends
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0


@dataclass(frozen=True)
class Marks:
    """Cells (row, column) of a map that are pointed out: framed, ringed, or faintly ringed; and what each of the three means."""

    framed: frozenset[tuple[int, int]] = frozenset()
    ringed: frozenset[tuple[int, int]] = frozenset()
    faint: frozenset[tuple[int, int]] = frozenset()
    meanings: tuple[str, str, str] = ("", "", "")

    def legend(self, signs: tuple[str, str, str]) -> str:
        """What the signs that are used mean, in one line."""
        used = zip((self.framed, self.ringed, self.faint), signs, self.meanings, strict=True)
        return ", ".join(f"{sign}: {meaning}" for cells, sign, meaning in used if cells)


@dataclass(frozen=True, eq=False)
class Panel:
    """One heat map, `values` (rows, columns); NaN is no value and is left blank.

    `looks` says what a row does with a column, in a few words: "a row's word looks at the columns' words".
    `tokens`: rows and columns are tokens, whose blanks are shown as characters; otherwise captions, whose blanks are blanks.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: np.ndarray
    looks: str = ""
    tokens: bool = True
    marks: Marks = Marks()

    def __post_init__(self) -> None:
        _must_have_shape("values", self.values, (len(self.rows), len(self.columns)))


@dataclass(frozen=True, eq=False)
class Cells:
    """The grid of heads: a colour by `values` (rows, columns) and a letter in each cell; `legend` says what the letters mean."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: np.ndarray
    letters: Sequence[Sequence[str]]
    legend: Mapping[str, str] = field(default_factory=dict)
    scale: Scale = Scale(label="entropy")

    def __post_init__(self) -> None:
        _must_have_shape("values", self.values, (len(self.rows), len(self.columns)))
        if [len(row) for row in self.letters] != [len(self.columns)] * len(self.rows):
            raise ValueError("letters: one must stand in each cell")


@dataclass(frozen=True, eq=False)
class Fan:
    """One word over all heads: where the token at `query_index` looks in each, `weights` (heads, tokens) from 0 to 1.

    `query` is that word as the title shows it; its index is None where it stands in another text than the tokens.
    text: what was read, for the line under the title.
    """

    title: str
    query: str
    query_index: int | None
    tokens: Sequence[str]
    weights: np.ndarray
    heads: Sequence[str]
    text: str = ""

    def __post_init__(self) -> None:
        _must_have_shape("weights", self.weights, (len(self.heads), len(self.tokens)))


@dataclass(frozen=True)
class Curves:
    """Lines over a common x; NaN leaves a gap."""

    title: str
    x: Sequence[float]
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[float]]

    def __post_init__(self) -> None:
        if any(len(line) != len(self.x) for line in self.lines.values()):
            raise ValueError("lines: each must have a value for each x")


@dataclass(frozen=True, eq=False)
class Sheet:
    """Panels, one or more, on one scale, `across` of them in each row (the heads of a layer); None makes the sheet about square.

    text: what was read, for the line under the title.
    """

    panels: Sequence[Panel]
    scale: Scale
    title: str
    across: int | None = None
    text: str = ""


def _must_have_shape(name: str, values: np.ndarray, shape: tuple[int, int]) -> None:
    if values.shape != shape:
        raise ValueError(f"{name}: {values.shape} must be (rows, columns) = {shape}")

"""Heat maps in files: one map that can be read cell by cell, or many side by side (every head).

A figure grows with what it shows, up to 30 inches; letters keep their size. What would be too small to read (the tokens of 144 maps of
100 tokens) is left out, and the figure says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

import numpy as np

from mini_tf.drawing.canvas import EDGE, LINE, LONGEST, TITLE, add_scale, cut_to, headline, paint, place, text_width, titled, to_bytes
from mini_tf.drawing.glyphs import figure_caption, figure_label
from mini_tf.drawing.panel import Marks, Panel, Scale
from mini_tf.drawing.plotting import Axes, Figure
from mini_tf.system.errors import UsageFault

_LONGEST_WORD = 18
_ROOM_FOR_A_NUMBER = 0.3
_GAPS = (0.12, 0.3)
"""Inches between maps to the right and downwards, where the title of the next one stands."""
_TITLE = 0.6
"""Inches that a title gets even over a narrow map."""
_MOST = 50
"""Maps to either side: a quarter of an inch each."""


@dataclass(frozen=True)
class _Sheet:
    """How the panels of a figure are laid out, in inches: `across` panels side by side, a cell's size, the room around each map."""

    across: int
    down: int
    cell: float
    map_size: tuple[float, float]
    words: tuple[float, float]
    shared: bool
    every: int

    @property
    def pitch(self) -> tuple[float, float]:
        """From one panel to the next: the words stand beside every map, or, shared, only along the left and lower edge."""
        between = (0.0, 0.0) if self.shared else self.words
        to_right, downwards = (size + word + gap for size, word, gap in zip(self.map_size, between, _GAPS, strict=True))
        return max(to_right, min(_TITLE, LONGEST / self.across)), downwards


def draw_panels(panels: Sequence[Panel], scale: Scale, title: str, suffix: str, *, across: int | None = None) -> bytes:
    """The panels (one or more) on one scale, row by row, `across` in each (the heads of a layer); None makes the sheet about square.

    UsageFault where they are too many for a figure.
    """
    if not panels:
        raise ValueError("panels: there must be one")
    return to_bytes(lambda: _sheet_of(panels, scale, title, across or ceil(sqrt(len(panels)))), suffix)


def _sheet_of(panels: Sequence[Panel], scale: Scale, title: str, across: int) -> Figure:
    sheet = _laid_out(panels, min(across, len(panels)))
    said = [line for panel in panels for line in (panel.looks, panel.marks.legend(("square", "ring", "dotted ring"))) if line]
    looks = list(dict.fromkeys(map(headline, said)))
    notes = [*looks, *([] if sheet.every else ["Tokens are left out, for want of room: draw fewer heads, or fewer tokens, to read them."])]
    top = 0.4 + LINE * len(notes) + 0.2
    (step_x, step_y), (words_x, words_y) = sheet.pitch, sheet.words
    left = EDGE + words_x
    maps_x, maps_y = (sheet.across - 1) * step_x + sheet.map_size[0], (sheet.down - 1) * step_y + sheet.map_size[1]
    words = [text_width(headline(title), TITLE), *map(text_width, notes)]
    width = max(left + maps_x + 0.9, 2 * EDGE + max(words), 3.0)
    figure = titled(width, top + max(maps_y, 0.8) + words_y + 0.1, title, notes)
    for number, panel in enumerate(panels):
        row, column = divmod(number, sheet.across)
        rows, columns = panel.values.shape
        axes = place(figure, left + column * step_x, top + row * step_y, columns * sheet.cell, rows * sheet.cell)
        paint(axes, panel.values, scale, _numbers(panel.values, scale) if sheet.cell >= _ROOM_FOR_A_NUMBER else {})
        axes.spines[:].set_linewidth(0.5)
        _mark(axes, panel.marks, sheet.cell)
        lowest = number + sheet.across >= len(panels)
        rows_named, columns_named = (sheet.every if at_edge or not sheet.shared else 0 for at_edge in (column == 0, lowest))
        axes.set_yticks(*_ticks(panel, panel.rows, rows_named))
        axes.set_xticks(*_ticks(panel, panel.columns, columns_named), rotation=90)
        axes.set_title(cut_to(panel.title, max(sheet.map_size[0], min(_TITLE, step_x - 0.05))), loc="left", pad=3)
    add_scale(figure, scale, left + maps_x + 0.12, top, min(max(maps_y, 0.8), 3.0))
    return figure


def _laid_out(panels: Sequence[Panel], across: int) -> _Sheet:
    """A cell as large as is pleasant, and no larger than fits; labels where a line of words fits a cell, else on every n-th of one map."""
    down = ceil(len(panels) / across)
    if max(across, down) > _MOST:
        what = f"{len(panels)} maps in {down} rows of {across}: a figure has room for {_MOST} rows of {_MOST}"
        raise UsageFault(what, hint="choose some by --layer and --head")
    rows, columns = (max(1, *(panel.values.shape[axis] for panel in panels)) for axis in (0, 1))
    shared = len(panels) > 1 and all((panel.rows, panel.columns) == (panels[0].rows, panels[0].columns) for panel in panels)
    named = panels[:1] if shared else panels
    words = (
        _widest([word for panel in named for word in _named(panel, panel.rows)]),
        _widest([word for panel in named for word in _named(panel, panel.columns)]),
    )
    counts, cells = (across, down), (columns, rows)
    fits = _largest_cell(counts, cells, words if shared or len(panels) == 1 else (across * words[0], down * words[1]))
    pleasant = (5.0 if len(panels) == 1 else 1.6) / max(cells)
    if len(panels) == 1:
        cell = min(max(pleasant, LINE), 0.45, fits)
        every = ceil(LINE / cell - 1e-9)
    else:
        every = int(fits >= LINE)
        cell = min(max(pleasant, LINE), 0.45, fits) if every else min(pleasant, _largest_cell(counts, cells, (0.0, 0.0)))
    return _Sheet(across, down, cell, (columns * cell, rows * cell), words if every else (0.0, 0.0), shared or not every, every)


def _largest_cell(counts: tuple[int, int], cells: tuple[int, int], words: tuple[float, float]) -> float:
    """The side of a cell with which so many maps of so many cells fit, each to the right and downwards; `words` are all in a row."""
    parts = zip(counts, cells, words, _GAPS, strict=True)
    return min(((LONGEST - room) / count - gap) / cell for count, cell, room, gap in parts)


def _widest(words: Sequence[str]) -> float:
    return 0.1 + max(map(text_width, dict.fromkeys(words)), default=0.0)


def _named(panel: Panel, names: Sequence[str]) -> list[str]:
    shown = figure_label if panel.tokens else figure_caption
    return [shown(name, _LONGEST_WORD) for name in names]


def _mark(axes: Axes, marks: Marks, cell: float) -> None:
    """Twice each, the wider line in white, so that it is seen on every colour."""
    axes.autoscale(False)  # what is marked changes nothing
    for cells, share, shape, strokes in ((marks.framed, 0.92, "s", "-"), (marks.ringed, 0.7, "o", "-"), (marks.faint, 0.7, "o", ":")):
        rows, columns = [row for row, _ in cells], [column for _, column in cells]
        for color, width in (("white", 2.4), ("#d0104c", 1.2)):
            line: dict[str, Any] = {"facecolors": "none", "edgecolors": color, "linewidths": width, "linestyle": strokes}
            axes.scatter(columns, rows, (72 * cell * share) ** 2, marker=shape, **line)


def _ticks(panel: Panel, names: Sequence[str], every: int) -> tuple[Sequence[int], list[str]]:
    """The places of every n-th name, and how they read; of none for 0."""
    places = range(0, len(names), every) if every else ()
    return places, _named(panel, [names[i] for i in places])


def _numbers(values: np.ndarray, scale: Scale) -> dict[tuple[int, int], str]:
    """What is written on the cells that are neither blank nor zero."""

    def digits(value: float) -> str:
        return f"{round(value, 2) + 0.0:.2f}".replace("0.", ".", 1) if scale.in_hundredths else f"{value:.3g}"

    return {(row, column): digits(values[row, column]) for row, column in np.argwhere(np.nan_to_num(values))}

"""Heat maps in files: one map that can be read cell by cell, or many side by side (every head).

A figure grows with what it shows, up to 30 inches; letters keep their size. Where tokens would be too small to read (144 maps of 100
tokens), the maps have their indices instead, and the tokens stand above the maps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil, sqrt
from typing import Any

import numpy as np

from mini_tf.drawing.canvas import (
    EDGE,
    LINE,
    LONGEST,
    TITLE,
    add_scale,
    cut_to,
    headline,
    paint,
    place,
    text_width,
    titled,
    to_bytes,
    wrapped,
)
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
_INDEX = 0.26
"""Inches from one index of a token to the next, where tokens themselves have no room."""
_MOST_LINES = 12
"""Lines of tokens above the maps."""
_NARROWEST = 5.0
"""Inches that what is written above the maps gets at least, with its edges."""
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
    indexed: bool = False
    """Every n-th row and column has its index; otherwise its token."""

    @property
    def pitch(self) -> tuple[float, float]:
        """From one panel to the next: the words stand beside every map, or, shared, only along the left and lower edge."""
        between = (0.0, 0.0) if self.shared else self.words
        to_right, downwards = (size + word + gap for size, word, gap in zip(self.map_size, between, _GAPS, strict=True))
        return max(to_right, min(_TITLE, LONGEST / self.across)), downwards


def draw_panels(panels: Sequence[Panel], scale: Scale, title: str, suffix: str, *, across: int | None = None, text: str = "") -> bytes:
    """The panels (one or more) on one scale, row by row, `across` in each (the heads of a layer); None makes the sheet about square.

    text: what was read, under the title. UsageFault where they are too many for a figure.
    """
    if not panels:
        raise ValueError("panels: there must be one")
    return to_bytes(lambda: _sheet_of(panels, scale, title, text, across or ceil(sqrt(len(panels)))), suffix)


def _sheet_of(panels: Sequence[Panel], scale: Scale, title: str, text: str, across: int) -> Figure:
    sheet = _laid_out(panels, min(across, len(panels)))
    (step_x, step_y), (words_x, words_y) = sheet.pitch, sheet.words
    left = EDGE + words_x
    maps_x, maps_y = (sheet.across - 1) * step_x + sheet.map_size[0], (sheet.down - 1) * step_y + sheet.map_size[1]
    width = max(left + maps_x + 0.9, 2 * EDGE + min(text_width(headline(title), TITLE), LONGEST), _NARROWEST)
    notes = _notes(panels, scale, text, sheet, width - 2 * EDGE)
    top = 0.4 + LINE * len(notes) + 0.2
    figure = titled(width, top + max(maps_y, 0.8) + words_y + 0.1, title, notes)
    for number, panel in enumerate(panels):
        row, column = divmod(number, sheet.across)
        rows, columns = panel.values.shape
        axes = place(figure, left + column * step_x, top + row * step_y, columns * sheet.cell, rows * sheet.cell)
        paint(axes, panel.values, scale, _numbers(panel.values, scale) if sheet.cell >= _ROOM_FOR_A_NUMBER else {})
        axes.spines[:].set_linewidth(0.5)
        _mark(axes, panel.marks, sheet.cell)
        lowest = number + sheet.across >= len(panels)
        named_rows, named_columns = (at_edge or not sheet.shared for at_edge in (column == 0, lowest))
        axes.set_yticks(*(_ticks(panel, panel.rows, sheet) if named_rows else ([], [])))
        axes.set_xticks(*(_ticks(panel, panel.columns, sheet) if named_columns else ([], [])), rotation=0 if sheet.indexed else 90)
        axes.tick_params(length=2 * sheet.indexed)
        axes.set_title(cut_to(panel.title, max(sheet.map_size[0], min(_TITLE, step_x - 0.05))), loc="left", pad=3)
    add_scale(figure, scale, left + maps_x + 0.12, top, min(max(maps_y, 0.8), 3.0))
    return figure


def _notes(panels: Sequence[Panel], scale: Scale, text: str, sheet: _Sheet, width: float) -> list[str]:
    """The lines above the maps: the text, how a map is read, what its colours mean, and tokens that do not stand beside the maps."""
    marks = [panel.marks.legend(("square", "ring", "dotted ring")) for panel in panels]
    said = [line for line in dict.fromkeys([*(panel.looks for panel in panels), *marks]) if line]
    lines = wrapped(text, width, 2) if text else []
    lines += [line for one in said for line in wrapped(one, width, 3)]
    if scale.open_end:
        low, high = scale.ends
        lines += wrapped(f"Colours are linear from {low:.3g} to {high:.3g}; larger values have the last colour.", width, 2)
    if not sheet.indexed:
        return lines
    sides = [(panel, names) for panel in panels for names in (panel.rows, panel.columns)]
    for panel, names in {tuple(names): (panel, names) for panel, names in sides}.values():
        shown = _named(panel, names)
        parts = [f"[{at}]{' '.join(shown[at : at + sheet.every])}" for at in range(0, len(shown), sheet.every)]
        lines += wrapped(f"{'Tokens' if panel.tokens else 'Names'}:  {'   '.join(parts)}", width, _MOST_LINES)
    return lines


def _laid_out(panels: Sequence[Panel], across: int) -> _Sheet:
    """A cell as large as is pleasant, and no larger than fits; labels where a line of words fits a cell, else on every n-th of one map,
    of several maps indices."""
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
    grid, cells = (across, down), (columns, rows)
    fits = _largest_cell(grid, cells, words if shared or len(panels) == 1 else (across * words[0], down * words[1]))
    pleasant = (5.0 if len(panels) == 1 else 1.6) / max(cells)
    if len(panels) == 1:
        cell = min(max(pleasant, LINE), 0.45, fits)
        every = ceil(LINE / cell - 1e-9)
    elif fits >= LINE:
        cell, every = min(max(pleasant, LINE), 0.45, fits), 1
    else:
        words = (0.1 + text_width(str(rows - 1)), 0.1 + LINE)
        cell = min(pleasant, _largest_cell(grid, cells, words if shared else (across * words[0], down * words[1])))
        every = next(step for step in _round_numbers() if step * cell >= _INDEX or step >= max(cells))
        return _Sheet(across, down, cell, (columns * cell, rows * cell), words, shared, every, indexed=True)
    return _Sheet(across, down, cell, (columns * cell, rows * cell), words, shared, every)


def _round_numbers() -> Iterator[int]:
    """1, 2, 5, 10, 20, 50, ..."""
    return (digit * 10**power for power in count() for digit in (1, 2, 5))


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


def _ticks(panel: Panel, names: Sequence[str], sheet: _Sheet) -> tuple[Sequence[int], list[str]]:
    """The places of every n-th name, and how they read, or their indices."""
    places = range(0, len(names), sheet.every)
    if sheet.indexed and len(places) > 1 and (len(names) - places[-1]) * sheet.cell < text_width(str(places[-1])) / 2:
        places = places[:-1]  # it would reach into the next map
    return places, [str(i) for i in places] if sheet.indexed else _named(panel, [names[i] for i in places])


def _numbers(values: np.ndarray, scale: Scale) -> dict[tuple[int, int], str]:
    """What is written on the cells that are neither blank nor zero."""

    def digits(value: float) -> str:
        return f"{round(value, 2) + 0.0:.2f}".replace("0.", ".", 1) if scale.in_hundredths else f"{value:.3g}"

    return {(row, column): digits(values[row, column]) for row, column in np.argwhere(np.nan_to_num(values))}

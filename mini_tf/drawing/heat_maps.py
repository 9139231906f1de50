"""Heat maps in files: one map that can be read cell by cell, or many side by side (every head).

A figure grows with what it shows, up to 30 inches; letters keep their size. What would be too small to read (the tokens of 144 maps of
100 tokens) is left out, and the figure says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isnan, sqrt

import numpy as np

from mini_tf.drawing.canvas import (
    LINE,
    LONGEST,
    SMALL,
    TITLE,
    add_scale,
    blank,
    colors_of,
    cut_to,
    headline,
    house_style,
    ink,
    norm_of,
    place,
    text_width,
    to_bytes,
    write,
)
from mini_tf.drawing.glyphs import figure_caption, figure_label
from mini_tf.drawing.panel import Marks, Panel, Scale
from mini_tf.drawing.plotting import Axes, Figure
from mini_tf.system.errors import UsageFault

_LONGEST_WORD = 18
_ROOM_FOR_A_NUMBER = 0.3
_EDGE = 0.15
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
    with house_style():
        return to_bytes(_sheet_of(panels, scale, title, across or ceil(sqrt(len(panels)))), suffix)


def _sheet_of(panels: Sequence[Panel], scale: Scale, title: str, across: int) -> Figure:
    sheet = _laid_out(panels, min(across, len(panels)))
    said = [line for panel in panels for line in (panel.looks, panel.marks.legend(("square", "ring", "dotted ring"))) if line]
    looks = list(dict.fromkeys(map(headline, said)))
    notes = [*looks, *([] if sheet.every else ["Tokens are left out, for want of room: draw fewer heads, or fewer tokens, to read them."])]
    top = 0.4 + LINE * len(notes) + 0.2
    (step_x, step_y), (words_x, words_y) = sheet.pitch, sheet.words
    left = _EDGE + words_x
    maps_x, maps_y = (sheet.across - 1) * step_x + sheet.map_size[0], (sheet.down - 1) * step_y + sheet.map_size[1]
    words = [text_width(headline(title), TITLE), *map(text_width, notes)]
    width = max(left + maps_x + 0.9, 2 * _EDGE + max(words), 3.0)
    figure = blank(width, top + max(maps_y, 0.8) + words_y + 0.1)
    write(figure, _EDGE, 0.12, cut_to(title, width - 2 * _EDGE, TITLE), TITLE)
    for number, note in enumerate(notes):
        write(figure, _EDGE, 0.36 + LINE * number, cut_to(note, width - 2 * _EDGE), color="#555555")
    for number, panel in enumerate(panels):
        row, column = divmod(number, sheet.across)
        rows, columns = panel.values.shape
        axes = place(figure, left + column * step_x, top + row * step_y, columns * sheet.cell, rows * sheet.cell)
        _paint(axes, panel.values, scale)
        _mark(axes, panel.marks, sheet.cell)
        lowest = number + sheet.across >= len(panels)
        _name_rows(axes, panel, sheet.every if column == 0 or not sheet.shared else 0)
        _name_columns(axes, panel, sheet.every if lowest or not sheet.shared else 0)
        axes.set_title(cut_to(panel.title, max(sheet.map_size[0], min(_TITLE, step_x - 0.05))), loc="left", pad=3)
        if sheet.cell >= _ROOM_FOR_A_NUMBER:
            _write_numbers(axes, panel.values, scale)
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


def _paint(axes: Axes, values: np.ndarray, scale: Scale) -> None:
    colors = colors_of(scale)
    # "none" keeps one pixel a value in an SVG; "auto" follows the axes, whose size already fits.
    axes.imshow(np.ma.masked_invalid(values), cmap=colors.cmap, norm=norm_of(scale), interpolation="none", aspect="auto")
    axes.autoscale(False)  # what is marked changes nothing
    axes.tick_params(length=0, pad=2)
    for spine in axes.spines.values():
        spine.set_linewidth(0.5)


def _mark(axes: Axes, marks: Marks, cell: float) -> None:
    """Twice each, the wider line in white, so that it is seen on every colour."""
    for cells, share, shape, strokes in ((marks.framed, 0.92, "s", "-"), (marks.ringed, 0.7, "o", "-"), (marks.faint, 0.7, "o", ":")):
        rows, columns = [row for row, _ in cells], [column for _, column in cells]
        for color, width in (("white", 2.4), ("#d0104c", 1.2)):
            axes.scatter(
                columns,
                rows,
                (72 * cell * share) ** 2,
                marker=shape,
                facecolors="none",
                edgecolors=color,
                linewidths=width,
                linestyle=strokes,
            )


def _name_rows(axes: Axes, panel: Panel, every: int) -> None:
    places = range(0, len(panel.rows), every) if every else ()
    axes.set_yticks(places, _named(panel, [panel.rows[i] for i in places]))


def _name_columns(axes: Axes, panel: Panel, every: int) -> None:
    places = range(0, len(panel.columns), every) if every else ()
    axes.set_xticks(places, _named(panel, [panel.columns[i] for i in places]), rotation=90)


def _write_numbers(axes: Axes, values: np.ndarray, scale: Scale) -> None:
    colors = colors_of(scale)
    for (row, column), value in np.ndenumerate(values):
        if isnan(value) or value == 0:
            continue
        digits = f"{round(value, 2) + 0.0:.2f}".replace("0.", ".", 1) if scale.in_hundredths else f"{value:.3g}"
        axes.text(column, row, digits, fontsize=SMALL, ha="center", va="center", color=ink(value, colors))

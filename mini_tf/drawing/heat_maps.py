"""Heat maps for files: one map with numbers, or many side by side (all heads).

Figures grow with their content up to 30 inches, with a fixed font size. If tokens do not fit beside the maps (144 maps
of 100 tokens), the maps have token indices, and the tokens are listed above.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil, sqrt
from typing import Any

import numpy as np

from mini_tf.drawing.canvas import (
    LINE_HEIGHT,
    MARGIN,
    MAX_SIZE,
    TITLE_SIZE,
    add_axes,
    add_colorbar,
    draw_heat_map,
    figure_bytes,
    short_caption,
    text_width,
    titled_figure,
    truncate_to,
    wrap_caption,
)
from mini_tf.drawing.glyphs import figure_caption, figure_label
from mini_tf.drawing.panel import Marks, Panel, Scale
from mini_tf.drawing.plotting import Axes, Figure
from mini_tf.system.errors import UsageFault

_MAX_LABEL = 18
_MIN_NUMBERED_CELL = 0.3
_GAPS = (0.12, 0.3)
"""Horizontal and vertical space between maps in inches; the vertical one has the title of the next."""
_MIN_TITLE = 0.6
"""Minimum width of a title in inches."""
_INDEX_SPACING = 0.26
"""Minimum distance of two token indices in inches."""
_MAX_LINES = 12
"""Maximum number of lines of tokens above the maps."""
_MIN_WIDTH = 5.0
"""Minimum width of a figure in inches."""
_MAX_MAPS = 50
"""Maximum number of rows and of columns of maps."""


@dataclass(frozen=True)
class _Layout:
    """Layout of a figure in inches: `across` by `down` panels, size of a cell and a map, width and height of labels.

    shared: labels only at the left and lower edge, for all maps; every: n-th rows and columns with a label; indexed:
    labels are indices, not tokens.
    """

    across: int
    down: int
    cell: float
    map_size: tuple[float, float]
    words: tuple[float, float]
    shared: bool
    every: int
    indexed: bool = False

    @property
    def pitch(self) -> tuple[float, float]:
        """Horizontal and vertical distance of panels, with labels unless they are shared."""
        between = (0.0, 0.0) if self.shared else self.words
        horizontal, vertical = (
            size + word + gap for size, word, gap in zip(self.map_size, between, _GAPS, strict=True)
        )
        return max(horizontal, min(_MIN_TITLE, MAX_SIZE / self.across)), vertical


def draw_panels(
    panels: Sequence[Panel], scale: Scale, title: str, suffix: str, *, across: int | None = None, text: str = ""
) -> bytes:
    """Draw one or more panels on one scale, `across` per row (the heads of a layer); None: an almost square layout.

    text: shown below the title. Raises UsageFault for too many panels.
    """
    if not panels:
        raise ValueError("panels: there must be one")
    return figure_bytes(lambda: _draw_panels(panels, scale, title, text, across or ceil(sqrt(len(panels)))), suffix)


def _draw_panels(panels: Sequence[Panel], scale: Scale, title: str, text: str, across: int) -> Figure:
    layout = _layout(panels, min(across, len(panels)))
    (step_x, step_y), (words_x, words_y) = layout.pitch, layout.words
    left = MARGIN + words_x
    maps_x, maps_y = (layout.across - 1) * step_x + layout.map_size[0], (layout.down - 1) * step_y + layout.map_size[1]
    width = max(
        left + maps_x + 0.9, 2 * MARGIN + min(text_width(short_caption(title), TITLE_SIZE), MAX_SIZE), _MIN_WIDTH
    )
    notes = _notes(panels, scale, text, layout, width - 2 * MARGIN)
    top = 0.4 + LINE_HEIGHT * len(notes) + 0.2
    figure = titled_figure(width, top + max(maps_y, 0.8) + words_y + 0.1, title, notes)
    for number, panel in enumerate(panels):
        row, column = divmod(number, layout.across)
        rows, columns = panel.values.shape
        axes = add_axes(figure, left + column * step_x, top + row * step_y, columns * layout.cell, rows * layout.cell)
        draw_heat_map(
            axes, panel.values, scale, _numbers(panel.values, scale) if layout.cell >= _MIN_NUMBERED_CELL else {}
        )
        axes.spines[:].set_linewidth(0.5)
        _mark(axes, panel.marks, layout.cell)
        lowest = number + layout.across >= len(panels)
        named_rows, named_columns = (at_edge or not layout.shared for at_edge in (column == 0, lowest))
        axes.set_yticks(*(_ticks(panel, panel.rows, layout) if named_rows else ([], [])))
        axes.set_xticks(
            *(_ticks(panel, panel.columns, layout) if named_columns else ([], [])), rotation=0 if layout.indexed else 90
        )
        axes.tick_params(length=2 * layout.indexed)
        axes.set_title(
            truncate_to(panel.title, max(layout.map_size[0], min(_MIN_TITLE, step_x - 0.05))), loc="left", pad=3
        )
    add_colorbar(figure, scale, left + maps_x + 0.12, top, min(max(maps_y, 0.8), 3.0))
    return figure


def _notes(panels: Sequence[Panel], scale: Scale, text: str, layout: _Layout, width: float) -> list[str]:
    """The lines above the maps: text, notes of the panels, legends, and tokens that do not fit beside the maps."""
    marks = [panel.marks.legend(("square", "ring", "dotted ring")) for panel in panels]
    notes = [line for line in dict.fromkeys([*(panel.note for panel in panels), *marks]) if line]
    lines = wrap_caption(text, width, 2) if text else []
    lines += [line for one in notes for line in wrap_caption(one, width, 3)]
    if scale.open_end:
        low, high = scale.ends
        lines += wrap_caption(
            f"Colours are linear from {low:.3g} to {high:.3g}; larger values have the last colour.", width, 2
        )
    if not layout.indexed:
        return lines
    sides = [(panel, names) for panel in panels for names in (panel.rows, panel.columns)]
    for panel, names in {tuple(names): (panel, names) for panel, names in sides}.values():
        if list(names) == [str(i) for i in range(len(names))]:
            continue  # numbers name themselves
        shown = _labels(panel, names)
        parts = [f"[{at}]{' '.join(shown[at : at + layout.every])}" for at in range(0, len(shown), layout.every)]
        lines += wrap_caption(f"{'Tokens' if panel.tokens else 'Names'}:  {'   '.join(parts)}", width, _MAX_LINES)
    return lines


def _layout(panels: Sequence[Panel], across: int) -> _Layout:
    """The layout with cells of the preferred size, or the largest that fits.

    If labels do not fit, one map has a label on every n-th row and column, and several maps have indices.
    """
    down = ceil(len(panels) / across)
    if max(across, down) > _MAX_MAPS:
        what = f"{len(panels)} maps in {down} rows of {across}: a figure has room for {_MAX_MAPS} rows of {_MAX_MAPS}"
        raise UsageFault(what, hint="select heads by --layer and --head")
    rows, columns = (max(1, *(panel.values.shape[axis] for panel in panels)) for axis in (0, 1))
    shared = len(panels) > 1 and all(
        (panel.rows, panel.columns) == (panels[0].rows, panels[0].columns) for panel in panels
    )
    named = panels[:1] if shared else panels
    words = (
        _widest([word for panel in named for word in _labels(panel, panel.rows)]),
        _widest([word for panel in named for word in _labels(panel, panel.columns)]),
    )
    grid, cells = (across, down), (columns, rows)
    fits = _largest_cell(grid, cells, words if shared or len(panels) == 1 else (across * words[0], down * words[1]))
    preferred = (5.0 if len(panels) == 1 else 1.6) / max(cells)
    if len(panels) == 1:
        cell = min(max(preferred, LINE_HEIGHT), 0.45, fits)
        every = ceil(LINE_HEIGHT / cell - 1e-9)
    elif fits >= LINE_HEIGHT:
        cell, every = min(max(preferred, LINE_HEIGHT), 0.45, fits), 1
    else:
        words = (0.1 + text_width(str(rows - 1)), 0.1 + LINE_HEIGHT)
        cell = min(preferred, _largest_cell(grid, cells, words if shared else (across * words[0], down * words[1])))
        every = next(step for step in _round_numbers() if step * cell >= _INDEX_SPACING or step >= max(cells))
        return _Layout(across, down, cell, (columns * cell, rows * cell), words, shared, every, indexed=True)
    return _Layout(across, down, cell, (columns * cell, rows * cell), words, shared, every)


def _round_numbers() -> Iterator[int]:
    """1, 2, 5, 10, 20, 50, ..."""
    return (digit * 10**power for power in count() for digit in (1, 2, 5))


def _largest_cell(counts: tuple[int, int], cells: tuple[int, int], words: tuple[float, float]) -> float:
    """The largest cell size for `counts` maps of `cells` cells each, per axis; words: total size of labels."""
    parts = zip(counts, cells, words, _GAPS, strict=True)
    return min(((MAX_SIZE - room) / count - gap) / cell for count, cell, room, gap in parts)


def _widest(words: Sequence[str]) -> float:
    return 0.1 + max(map(text_width, dict.fromkeys(words)), default=0.0)


def _labels(panel: Panel, names: Sequence[str]) -> list[str]:
    shown = figure_label if panel.tokens else figure_caption
    return [shown(name, _MAX_LABEL) for name in names]


def _mark(axes: Axes, marks: Marks, cell: float) -> None:
    """Draw the marks with a white outline, so that they are visible on every color."""
    axes.autoscale(False)  # marks must not change the limits
    for cells, share, shape, strokes in (
        (marks.squares, 0.92, "s", "-"),
        (marks.rings, 0.7, "o", "-"),
        (marks.dotted_rings, 0.7, "o", ":"),
    ):
        rows, columns = [row for row, _ in cells], [column for _, column in cells]
        for color, width in (("white", 2.4), ("#d0104c", 1.2)):
            line: dict[str, Any] = {
                "facecolors": "none",
                "edgecolors": color,
                "linewidths": width,
                "linestyle": strokes,
            }
            axes.scatter(columns, rows, (72 * cell * share) ** 2, marker=shape, **line)


def _ticks(panel: Panel, names: Sequence[str], layout: _Layout) -> tuple[Sequence[int], list[str]]:
    """Ticks and labels of every n-th row or column."""
    ticks = range(0, len(names), layout.every)
    if layout.indexed and len(ticks) > 1 and (len(names) - ticks[-1]) * layout.cell < text_width(str(ticks[-1])) / 2:
        ticks = ticks[:-1]  # its label would overlap the next map
    return ticks, [str(i) for i in ticks] if layout.indexed else _labels(panel, [names[i] for i in ticks])


def _numbers(values: np.ndarray, scale: Scale) -> dict[tuple[int, int], str]:
    """Numbers of the cells that are neither NaN nor zero."""

    def digits(value: float) -> str:
        return f"{round(value, 2) + 0.0:.2f}".replace("0.", ".", 1) if scale.in_hundredths else f"{value:.3g}"

    return {(row, column): digits(values[row, column]) for row, column in np.argwhere(np.nan_to_num(values))}

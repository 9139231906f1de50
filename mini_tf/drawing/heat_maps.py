"""Picture files of views. Heat maps: one with numbers, or many side by side (all heads), in sections with common
labels.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mini_tf.drawing.canvas import (
    COLORBAR_HEIGHT,
    COLORBAR_WIDTH,
    LINE_HEIGHT,
    MARGIN,
    MIN_WIDTH,
    Heading,
    add_axes,
    add_colorbar,
    draw_heat_map,
    figure_bytes,
    headed_figure,
    text_width,
    truncate_to,
    wrap_caption,
    write_line,
)
from mini_tf.drawing.curves import draw_curves
from mini_tf.drawing.look import look
from mini_tf.drawing.map_layout import SIDE, MapLayout, MapSection, label_texts, layout_of
from mini_tf.drawing.panel import Curves, Marks, Panel, PanelGrid, QueryWeights, Scale
from mini_tf.drawing.plotting import Axes, Figure, figure_caption
from mini_tf.drawing.query_weights import draw_query_weights

_MIN_NUMBERED_CELL = 0.3
_MAX_LINES = 12
"""Maximum number of lines of tokens below the maps."""


def draw_panels(grid: PanelGrid, suffix: str) -> bytes:
    """Draw one or more panels. Raises UsageFault for too many."""
    return figure_bytes(lambda: _draw_panels(grid), suffix)


def _draw_panels(grid: PanelGrid) -> Figure:
    layout = layout_of(grid.panels)
    extent = layout.extent
    width = max(MARGIN + extent[0] + COLORBAR_WIDTH, MIN_WIDTH)
    heading = Heading.of(grid.title, grid.text, _notes(grid), width)
    listed = [] if not layout.indexed else _listed(grid.panels, layout, width - 2 * MARGIN)
    height = max(extent[1], layout.top + COLORBAR_HEIGHT[0] + 0.1) + 0.1
    figure = headed_figure(width, height + LINE_HEIGHT * (len(listed) + bool(listed)), heading)
    places = [(section, left, heading.height + top) for section, left, top in layout.places()]
    for section, left, top in places:
        _draw_section(figure, layout, section, left, top, grid.scale)
    for number, line in enumerate(listed):
        write_line(figure, heading.height + height + LINE_HEIGHT * number, line, color=look().colors.muted)
    top = heading.height + layout.top
    lowest = max(
        top + layout.size_of(section)[1] - section.labels(layout.size, layout.indexed)[1] for section, _, top in places
    )
    add_colorbar(figure, grid.scale, MARGIN + extent[0] + 0.12, top, lowest - top)
    return figure


def _draw_section(
    figure: Figure, layout: MapLayout, section: MapSection, left: float, top: float, scale: Scale
) -> None:
    """Draw the maps of a section, whose names and titles of axes stand once along its edges."""
    labels, (step_x, step_y) = section.labels(layout.size, layout.indexed), layout.pitch(section)
    width, height = layout.map_size(section.first)
    first_x, first_y = left + labels[0], top + layout.top
    for row, of_line in enumerate(section.maps):
        for number, panel in enumerate(of_line):
            axes = add_axes(figure, first_x + number * step_x, first_y + row * step_y, width, height)
            numbers = _numbers(panel.values, scale) if layout.cell >= _MIN_NUMBERED_CELL else {}
            draw_heat_map(axes, panel.values, scale, numbers)
            _mark(axes, panel.marks, layout.cell)
            is_lowest = row + 1 == len(section.maps) or number >= len(section.maps[row + 1])
            axes.set_yticks(*(_ticks(panel, panel.rows, layout) if number == 0 else ([], [])))
            ticks, names = _ticks(panel, panel.columns, layout) if is_lowest else ([], [])
            is_narrow = max(map(text_width, names), default=0.0) < LINE_HEIGHT
            axes.set_xticks(ticks, names, rotation=0 if layout.indexed or is_narrow else 90)
            axes.tick_params(length=2 * layout.indexed, labelsize=layout.size)
            axes.set_title(truncate_to(panel.title, max(width, section.title_width)), loc="left", pad=3)
    across, down = figure.get_size_inches()
    right = first_x + (section.across - 1) * step_x + width
    lower = first_y + (len(section.maps) - 1) * step_y + height
    style: dict[str, Any] = {"color": look().colors.muted, "ha": "center", "va": "center"}
    rows, columns = (figure_caption(side, 40) for side in section.first.sides)
    if rows:
        figure.text((left + SIDE / 2) / across, 1 - (first_y + lower) / 2 / down, rows, rotation=90, **style)
    if columns:
        figure.text((first_x + right) / 2 / across, 1 - (lower + labels[1] - SIDE / 2) / down, columns, **style)
    if layout.has_headings:
        figure.text(first_x / across, 1 - top / down, section.heading, va="top", fontweight="bold")


def _notes(grid: PanelGrid) -> list[str]:
    """Notes of the figure and its panels, and legends."""
    notes = [*grid.notes, *(panel.note for panel in grid.panels)]
    notes += [panel.marks.legend(("square", "ring", "dotted ring")) for panel in grid.panels]
    low, high = grid.scale.ends
    linear = f"Colours are linear from {low:.3g} to {high:.3g}; larger values have the last colour."
    return [*notes, linear] if grid.scale.open_end else notes


def _listed(panels: Sequence[Panel], layout: MapLayout, width: float) -> list[str]:
    """The tokens that do not fit beside the maps, each n-th with its index."""
    lines: list[str] = []
    sides = [(panel, names) for panel in panels for names in (panel.rows, panel.columns)]
    for panel, names in {tuple(names): (panel, names) for panel, names in sides}.values():
        if list(names) == [str(i) for i in range(len(names))]:
            continue  # numbers name themselves
        shown = label_texts(panel, names)
        parts = [f"[{at}]{' '.join(shown[at : at + layout.every])}" for at in range(0, len(shown), layout.every)]
        lines += wrap_caption(f"{'Tokens' if panel.tokens else 'Names'}:  {'   '.join(parts)}", width, _MAX_LINES)
    return lines


def _mark(axes: Axes, marks: Marks, cell: float) -> None:
    """Draw the marks with a white outline, so that they are visible on every color."""
    axes.autoscale(False)  # marks must not change the limits
    for cells, share, shape, strokes in (
        (marks.squares, 0.92, "s", "-"),
        (marks.rings, 0.7, "o", "-"),
        (marks.dotted_rings, 0.7, "o", ":"),
    ):
        if not cells:
            continue  # an empty collection would take as long as a map
        rows, columns = [row for row, _ in cells], [column for _, column in cells]
        for color, width in (("white", 2.4), ("#d0104c", 1.2)):
            line: dict[str, Any] = {
                "facecolors": "none",
                "edgecolors": color,
                "linewidths": width,
                "linestyle": strokes,
            }
            axes.scatter(columns, rows, (72 * cell * share) ** 2, marker=shape, **line)


def _ticks(panel: Panel, names: Sequence[str], layout: MapLayout) -> tuple[Sequence[int], list[str]]:
    """Ticks and labels of every n-th row or column."""
    ticks = range(0, len(names), layout.every)
    if layout.indexed and len(ticks) > 1 and (len(names) - ticks[-1]) * layout.cell < text_width(str(ticks[-1])) / 2:
        ticks = ticks[:-1]  # its label would overlap the next map
    return ticks, [str(i) for i in ticks] if layout.indexed else label_texts(panel, [names[i] for i in ticks])


def _numbers(values: np.ndarray, scale: Scale) -> dict[tuple[int, int], str]:
    """Numbers of the cells that are neither NaN nor zero."""

    def digits(value: float) -> str:
        return f"{round(value, 2) + 0.0:.2f}".replace("0.", ".", 1) if scale.in_hundredths else f"{value:.3g}"

    return {(row, column): digits(values[row, column]) for row, column in np.argwhere(np.nan_to_num(values))}


def draw(figure: PanelGrid | QueryWeights | Curves, suffix: str) -> bytes:
    """Draw a figure, `suffix` "png", "svg" or "pdf". Raises UsageFault if it has too many panels."""
    if isinstance(figure, PanelGrid):
        return draw_panels(figure, suffix)
    return draw_query_weights(figure, suffix) if isinstance(figure, QueryWeights) else draw_curves([figure], suffix)

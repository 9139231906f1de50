"""Line plots for files."""

from collections.abc import Sequence

from mini_tf.drawing.canvas import TITLE_SIZE, distinct_colors, figure_bytes, name_lines, truncate_to, write_title
from mini_tf.drawing.glyphs import figure_caption
from mini_tf.drawing.panel import Curves
from mini_tf.drawing.plotting import Figure

_WIDTH, _HEIGHT = 7.0, 4.0
_MAX_NAMES = 40
"""Maximum number of lines with a legend."""
_LINE_STYLES = ("-", "--", ":", "-.")
"""Neighboring lines differ in style as well as in color."""


def draw_curves(panels: Sequence[Curves], suffix: str) -> bytes:
    """Line plots side by side, with one legend, or, for many lines, with their number."""
    return figure_bytes(lambda: _draw(panels), suffix)


def _draw(panels: Sequence[Curves]) -> Figure:
    figure = Figure(figsize=(_WIDTH * (0.3 + 0.7 * len(panels)), _HEIGHT), layout="constrained")
    names = list(dict.fromkeys(name for curves in panels for name in curves.lines))
    styles = {name: _LINE_STYLES[number % 4] for number, name in enumerate(names)}
    colors, drawn = dict(zip(names, distinct_colors(len(names)), strict=True)), {}
    few = len(names) <= _MAX_NAMES
    if len(panels) == 1:
        write_title(figure, panels[0].title)
    for axes, curves in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        marker = "o" if len(curves.x) <= 20 else ""
        for name, line in curves.lines.items():
            style = {
                "color": colors[name],
                "linestyle": styles[name],
                "linewidth": 1.3,
                "marker": marker,
                "markersize": 3,
            }
            drawn[name] = axes.plot(curves.x, line, **style)[0]
        if len(panels) > 1:
            axes.set_title(truncate_to(curves.title, _WIDTH - 0.8, TITLE_SIZE), fontsize=TITLE_SIZE, loc="left")
        axes.set_xlabel(
            figure_caption(curves.x_label, 60) + ("" if few else f"   ({len(names)} lines, too many to name)")
        )
        axes.set_ylabel(figure_caption(curves.y_label, 40))
        if curves.logarithmic:
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
            axes.set_xticks(curves.x, [f"{x:,.0f}" for x in curves.x], rotation=45)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    if few and (len(names) > 1 or any(names)):
        name_lines(axes, {name: drawn[name] for name in names})
    return figure

"""Line plots for files."""

from mini_tf.drawing.canvas import TITLE_SIZE, distinct_colors, figure_bytes, truncate_to
from mini_tf.drawing.glyphs import figure_caption
from mini_tf.drawing.panel import Curves
from mini_tf.drawing.plotting import Figure

_WIDTH, _HEIGHT = 7.0, 4.0
_MAX_NAMES = 40
"""Maximum number of lines with a legend."""
_LINE_STYLES = ("-", "--", ":", "-.")
"""Neighboring lines differ in style as well as in color."""


def draw_curves(curves: Curves, suffix: str) -> bytes:
    """A line plot with a legend, or, for many lines, with their number."""
    return figure_bytes(lambda: _draw(curves), suffix)


def _draw(curves: Curves) -> Figure:
    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    axes = figure.subplots()
    few = len(curves.lines) <= _MAX_NAMES
    marker = "o" if len(curves.x) <= 20 else ""
    styles = [_LINE_STYLES[(number + number // 20) % 4] for number in range(len(curves.lines))]
    drawn = [
        axes.plot(curves.x, line, color=color, linestyle=style, linewidth=1.3, marker=marker, markersize=3)[0]
        for line, color, style in zip(curves.lines.values(), distinct_colors(len(curves.lines)), styles, strict=True)
    ]
    axes.set_title(truncate_to(curves.title, _WIDTH - 0.8, TITLE_SIZE), fontsize=TITLE_SIZE, loc="left")
    axes.set_xlabel(figure_caption(curves.x_label, 60) + ("" if few else f"   ({len(curves.lines)} lines, too many to name)"))
    axes.set_ylabel(figure_caption(curves.y_label, 40))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if few and (len(drawn) > 1 or any(curves.lines)):
        columns = 1 if len(drawn) <= 20 else 2
        legend = axes.legend(drawn, [""] * len(drawn), loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, ncols=columns)
        # legend() would leave out names that begin with an underscore.
        for text, name in zip(legend.get_texts(), curves.lines, strict=True):
            text.set_text(truncate_to(name, 2.0))
    return figure

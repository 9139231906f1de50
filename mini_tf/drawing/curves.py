"""Lines over a common x, for files: a measure of every head over training, over layers or over distance."""

from mini_tf.drawing.canvas import TITLE, cut_to, line_colors, to_bytes
from mini_tf.drawing.glyphs import figure_caption
from mini_tf.drawing.panel import Curves
from mini_tf.drawing.plotting import Figure

_WIDTH, _HEIGHT = 7.0, 4.0
_MOST_NAMES = 40
"""Lines beyond so many are drawn without their names."""
_STROKES = ("-", "--", ":", "-.")
"""Neighbours differ by them as well as by their colour."""


def draw_curves(curves: Curves, suffix: str) -> bytes:
    """A legend beside the lines says which is which; of many lines the figure says how many they are."""
    return to_bytes(lambda: _drawn(curves), suffix)


def _drawn(curves: Curves) -> Figure:
    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    axes = figure.subplots()
    few = len(curves.lines) <= _MOST_NAMES
    alone = "o" if len(curves.x) <= 20 else ""
    strokes = [_STROKES[(number + number // 20) % 4] for number in range(len(curves.lines))]
    drawn = [
        axes.plot(curves.x, line, color=color, linestyle=stroke, linewidth=1.3, marker=alone, markersize=3)[0]
        for line, color, stroke in zip(curves.lines.values(), line_colors(len(curves.lines)), strokes, strict=True)
    ]
    axes.set_title(cut_to(curves.title, _WIDTH - 0.8, TITLE), fontsize=TITLE, loc="left")
    axes.set_xlabel(figure_caption(curves.x_label, 60) + ("" if few else f"   ({len(curves.lines)} lines, too many to name)"))
    axes.set_ylabel(figure_caption(curves.y_label, 40))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if few and (len(drawn) > 1 or any(curves.lines)):
        columns = 1 if len(drawn) <= 20 else 2
        legend = axes.legend(drawn, [""] * len(drawn), loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, ncols=columns)
        # Not handed to legend(), which takes names that begin with an underscore for a sign to leave them out.
        for text, name in zip(legend.get_texts(), curves.lines, strict=True):
            text.set_text(cut_to(name, 2.0))
    return figure

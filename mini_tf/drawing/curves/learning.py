"""Learning curves: a metric over the number of training examples, on a logarithmic axis."""

import math
from collections.abc import Mapping, Sequence

from mini_tf.drawing.canvas import distinct_colors, figure_bytes, name_lines, write_title
from mini_tf.drawing.plotting import Figure, Line2D

Values = Sequence[tuple[int, Sequence[float]]]
"""The values of all runs at each number of examples, ascending."""


LABEL_WIDTH = 0.08
"""Of a number below the axis, as a share of the axis."""


def draw_learning_curves(lines: Mapping[str, Values], metric: str, suffix: str) -> bytes:
    """A picture with a line through the means of each recipe, and a dot for each run."""
    return figure_bytes(lambda: _draw(lines, metric), suffix)


def _draw(lines: Mapping[str, Values], metric: str) -> Figure:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes, drawn = figure.subplots(), dict[str, Line2D]()
    for (name, values), color in zip(lines.items(), distinct_colors(len(lines)), strict=True):
        sizes = [n for n, _ in values]
        axes.plot(sizes, [sum(of_size) / len(of_size) for _, of_size in values], color=color, linewidth=1.6)
        dots = [(n, value) for n, of_size in values for value in of_size]
        axes.plot(*zip(*dots, strict=True), color=color, marker="o", markersize=3.5, linestyle="", alpha=0.7)
        [drawn[name]] = axes.plot([], [], color=color, linewidth=1.6)
    sizes = sorted({n for values in lines.values() for n, _ in values})
    axes.set_xscale("log")
    labelled = labelled_sizes(sizes)
    axes.set_xticks(sizes, [f"{n:,}" if n in labelled else "" for n in sizes])
    axes.minorticks_off()
    write_title(figure, f"{metric}: mean (line) and single runs (dots)")
    axes.set_xlabel("training examples", fontsize=10)
    axes.set_ylabel(metric, fontsize=10)
    axes.tick_params(labelsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    name_lines(axes, drawn)
    return figure


def labelled_sizes(sizes: Sequence[int]) -> list[int]:
    """The numbers of examples (ascending) that are written below their ticks without overlap, the largest first."""
    labelled: list[int] = []
    for n in reversed(sizes):
        if not labelled or math.log(labelled[-1] / n) >= LABEL_WIDTH * math.log(sizes[-1] / sizes[0]):
            labelled.append(n)
    return labelled

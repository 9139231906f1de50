"""Line plots for files: curves over a common x, losses of runs, learning curves, and a search over settings."""

import math
from collections.abc import Mapping, Sequence

from mini_tf.drawing.canvas import TITLE_SIZE, distinct_colors, figure_bytes, name_lines, truncate_to, write_title
from mini_tf.drawing.panel import Curves
from mini_tf.drawing.plotting import Axes, Figure, Line2D, figure_caption
from mini_tf.drawing.run_losses import Points, running_mean
from mini_tf.recipe.values import real_number

_WIDTH, _HEIGHT = 7.0, 4.0
_MAX_NAMES = 40
"""Maximum number of lines with a legend."""
_LINE_STYLES = ("-", "--", ":", "-.")
"""Neighboring lines differ in style as well as in color."""


def draw_curves(panels: Sequence[Curves], suffix: str) -> bytes:
    """Line plots side by side, with one legend, or, for many lines, with their number."""
    return figure_bytes(lambda: _draw_curves(panels), suffix)


def _draw_curves(panels: Sequence[Curves]) -> Figure:
    figure = Figure(figsize=(_WIDTH * (0.3 + 0.7 * len(panels)), _HEIGHT), layout="constrained")
    names = list(dict.fromkeys(name for curves in panels for name in curves.lines))
    styles = {name: _LINE_STYLES[number % 4] for number, name in enumerate(names)}
    colors, drawn = dict(zip(names, distinct_colors(len(names)), strict=True)), {}
    uncounted = "" if len(names) <= _MAX_NAMES else f"   ({len(names)} lines, too many to name)"
    if len(panels) == 1:
        write_title(figure, panels[0].title)
    for axes, curves in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        marker = "o" if len(curves.x) <= 20 else ""
        for name, line in curves.lines.items():
            style = {"color": colors[name], "linestyle": styles[name], "marker": marker, "markersize": 3}
            drawn[name] = axes.plot(curves.x, line, linewidth=1.3, **style)[0]
        if len(panels) > 1:
            axes.set_title(truncate_to(curves.title, _WIDTH - 0.8, TITLE_SIZE), fontsize=TITLE_SIZE, loc="left")
        axes.set_xlabel(figure_caption(curves.x_label, 60) + uncounted)
        axes.set_ylabel(figure_caption(curves.y_label, 40))
        if curves.logarithmic:
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
            axes.set_xticks(curves.x, [f"{x:,.0f}" for x in curves.x], rotation=45)
        _add_grid(axes)
    if not uncounted and (len(names) > 1 or any(names)):
        name_lines(axes, {name: drawn[name] for name in names})
    return figure


def _add_grid(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def loss_curves(runs: Mapping[str, tuple[Points, Points]], unit: str, suffix: str, x_label: str = "step") -> bytes:
    """A picture of the (training, validation) losses of several runs: validation solid, training dashed."""
    return figure_bytes(lambda: _draw_losses(runs, unit, x_label), suffix)


def _draw_losses(runs: Mapping[str, tuple[Points, Points]], unit: str, x_label: str) -> Figure:
    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    axes, lines = figure.subplots(), dict[str, Line2D]()
    for (name, (train, val)), color in zip(runs.items(), distinct_colors(len(runs)), strict=True):
        if train:
            steps, losses = zip(*train, strict=True)
            means = running_mean(losses, max(1, len(losses) // 30))
            axes.plot(steps, means, color=color, linewidth=0.9, linestyle="--")
        if val:
            axes.plot(*zip(*val, strict=True), color=color, marker="o", markersize=3.5, linewidth=1.6)
        [lines[name]] = axes.plot([], [], color=color, linewidth=1.6)
    write_title(figure, "loss: validation with dots, training dashed")
    axes.set_xlabel(x_label, fontsize=10)
    axes.set_ylabel(f"loss ({unit})" if unit else "loss", fontsize=10)
    _add_grid(axes)
    name_lines(axes, lines)
    return figure


Values = Sequence[tuple[int, Sequence[float]]]
"""The values of all runs at each number of examples, ascending."""
_LABEL_WIDTH = 0.08
"""Of a number below the axis, as a share of the axis."""


def draw_learning_curves(lines: Mapping[str, Values], metric: str, suffix: str) -> bytes:
    """A picture of a metric over the number of training examples, on a logarithmic axis.

    A line goes through the means of each recipe, and each run is a dot.
    """
    return figure_bytes(lambda: _draw_learning(lines, metric), suffix)


def _draw_learning(lines: Mapping[str, Values], metric: str) -> Figure:
    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    axes, drawn = figure.subplots(), dict[str, Line2D]()
    for (name, values), color in zip(lines.items(), distinct_colors(len(lines)), strict=True):
        means = [sum(of_size) / len(of_size) for _, of_size in values]
        axes.plot([n for n, _ in values], means, color=color, linewidth=1.6)
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
    _add_grid(axes)
    name_lines(axes, drawn)
    return figure


def labelled_sizes(sizes: Sequence[int]) -> list[int]:
    """The numbers of examples (ascending) that are written below their ticks without overlap, the largest first."""
    labelled: list[int] = []
    for n in reversed(sizes):
        if not labelled or math.log(labelled[-1] / n) >= _LABEL_WIDTH * math.log(sizes[-1] / sizes[0]):
            labelled.append(n)
    return labelled


Trials = Sequence[tuple[Mapping[str, str], float, float | None]]
"""Of each trial: its settings, the mean of the metric, and half the width of its interval, None for one run."""
_BEST, _OTHERS = "#c2410c", "#7a9cc6"
_LONGEST = 12
"""Characters of a value below the axis."""
_MOST_TICKS = 8
"""Most numbers that are all written below the axis."""


def draw_searched(trials: Trials, metric: str, title: str, suffix: str) -> bytes:
    """A picture of a metric against each setting of a search. The first trial is the best one, which is marked."""
    return figure_bytes(lambda: _draw_searched(trials, metric, title), suffix)


def _draw_searched(trials: Trials, metric: str, title: str) -> Figure:
    keys = [*trials[0][0]] or [""]
    figure = Figure(figsize=(1.5 + 3.0 * len(keys), 3.4), layout="constrained")
    write_title(figure, title)
    for axes, key in zip(figure.subplots(1, len(keys), squeeze=False, sharey=True)[0], keys, strict=True):
        texts = [settings.get(key, "") for settings, _, _ in trials]
        numbers = [number for text in texts if (number := real_number(text)) is not None]
        places = [*dict.fromkeys(texts)]
        x = numbers if len(numbers) == len(texts) else [places.index(text) for text in texts]
        for n in reversed(range(len(trials))):  # the best one on top
            style = {"color": _OTHERS if n else _BEST, "marker": "o", "markersize": 4, "capsize": 3}
            axes.errorbar(x[n], trials[n][1], trials[n][2], **style)
        if x is numbers and min(x) > 0 and max(x) >= 10 * min(x):
            axes.set_xscale("log")
        if x is not numbers or len(places) <= _MOST_TICKS:
            captions = [figure_caption(text, _LONGEST) for text in places]
            axes.set_xticks([x[texts.index(text)] for text in places], captions)
            axes.minorticks_off()
        axes.set_xlabel(figure_caption(key, 40))
        _add_grid(axes)
    figure.axes[0].set_ylabel(metric)
    return figure

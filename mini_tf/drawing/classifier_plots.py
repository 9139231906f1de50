"""Plots of a classifier: its confusion matrix, for a file and for the terminal, and its reliability diagram.

Colors of a confusion matrix are shares of the row (the true class), so rare classes are as visible as frequent ones;
numbers in a file are counts. Reliability diagram: Guo et al. 2017, arXiv:1706.04599.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np
from rich.text import Text

from mini_tf.drawing.canvas import (
    COLORBAR_HEIGHT,
    COLORBAR_WIDTH,
    LINE_HEIGHT,
    MARGIN,
    MAX_SIZE,
    MIN_WIDTH,
    SMALL_SIZE,
    Heading,
    add_axes,
    add_colorbar,
    draw_heat_map,
    figure_bytes,
    headed_figure,
    text_width,
    write_title,
)
from mini_tf.drawing.look import look
from mini_tf.drawing.panel import Panel, Scale
from mini_tf.drawing.plotting import Figure, figure_caption
from mini_tf.drawing.terminal import heat_map, table
from mini_tf.drawing.text_layout import add_sentence, finish, new_text

_SHARE = Scale(label="share of the true class")
_MAX_NAME = 32
_MAX_CELL = 0.8
_MAX_NUMBERED = 40
"""Maximum number of classes for which cells of a file have counts."""
_MAX_LISTED = 20
"""Maximum number of confusions listed in a terminal if the matrix does not fit."""


def draw_confusion(counts: np.ndarray, names: Sequence[str], title: str, suffix: str) -> bytes:
    """A picture of counts (C, C): rows are true classes, gray without examples, columns predicted ones."""
    return figure_bytes(lambda: _draw_confusion(counts, names, title), suffix)


def confusion_text(counts: np.ndarray, names: Sequence[str], title: str, *, colored: bool, width: int) -> Text:
    """The shares of each row in hundredths, or, if the terminal is too narrow, the most frequent confusions."""
    if max(8, width // 5) + 1 + 4 * len(names) > width:
        return _list_confusions(counts, names, title, colored=colored, width=width)
    note = "Rows: true classes; columns: predicted classes. Values: shares of the true class."
    panel = Panel(title, names, names, shares(counts), note, tokens=False)
    return heat_map(panel, _SHARE, colored=colored, width=width, values=True, max_rows=len(names))


def shares(counts: np.ndarray) -> np.ndarray:
    """Counts divided by the sum of their row; NaN if it is 0."""
    totals, part = counts.sum(axis=1, keepdims=True), np.full(counts.shape, np.nan)
    np.divide(counts, totals, out=part, where=totals > 0)
    return part


def _list_confusions(counts: np.ndarray, names: Sequence[str], title: str, *, colored: bool, width: int) -> Text:
    off = np.where(np.eye(len(names), dtype=bool), 0, counts)
    order = np.argsort(-off, axis=None, kind="stable")
    cells = [divmod(int(cell), len(names)) for cell in order[:_MAX_LISTED] if off.flat[cell]]
    part = shares(counts)
    rows = [(names[row], names[column], str(counts[row, column]), float(part[row, column])) for row, column in cells]
    text = new_text(title, width)
    text.append_text(table(("true", "predicted", "count", "share"), rows, colored=colored, width=width)).append("\n")
    left = np.count_nonzero(off) - len(cells)
    shown = f"the {len(cells)} most frequent of {len(cells) + left}" if left else "all"
    more = "; --confusion FILE.png for all" if left else ""
    add_sentence(text, f"Confusions of {len(names)} classes: {shown} shown{more}.", width)
    return finish(text)


def _draw_confusion(counts: np.ndarray, names: Sequence[str], title: str) -> Figure:
    cell = _cell(counts)
    every = ceil(LINE_HEIGHT / cell - 1e-9)
    shown = range(0, len(names), every)
    rows = [figure_caption(f"{figure_caption(names[i], _MAX_NAME)} ({counts[i].sum()})") for i in shown]
    columns = [figure_caption(names[i], _MAX_NAME) for i in shown]
    left, below = (0.1 + max(map(text_width, words)) for words in (rows, columns))
    left += MARGIN + LINE_HEIGHT + 0.05
    cell = max(cell, min(_MAX_CELL, (MIN_WIDTH - left - COLORBAR_WIDTH) / len(names)))  # no empty space on the right
    size = len(names) * cell
    width = max(left + size + COLORBAR_WIDTH, MIN_WIDTH)
    heading = Heading.of(title, "", _notes(len(names), every), width)
    top = heading.height + 0.1
    figure = headed_figure(width, max(size + below, COLORBAR_HEIGHT[0]) + LINE_HEIGHT + 0.3, heading)
    axes = add_axes(figure, left, top, size, size)
    numbered = np.argwhere(counts) if len(names) <= _MAX_NUMBERED else ()
    numbers = {(row, column): str(counts[row, column]) for row, column in numbered}
    draw_heat_map(axes, shares(counts), _SHARE, numbers)
    axes.set_yticks(shown, rows)
    axes.set_xticks(shown, columns, rotation=90)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class (count)")
    add_colorbar(figure, _SHARE, left + size + 0.12, top, size)
    return figure


def _cell(counts: np.ndarray) -> float:
    """Cell size in inches: wide enough for the counts of few classes, then a line of text, then what fits."""
    n = len(counts)
    if n <= _MAX_NUMBERED:
        return max(0.3, 1.4 / n, text_width(str(counts.max()), SMALL_SIZE) + 0.1)
    return min(max(LINE_HEIGHT, 7.0 / n), MAX_SIZE / n)


def _notes(n: int, every: int) -> list[str]:
    notes = ["Numbers: counts. Colours: share of the true class."] if n <= _MAX_NUMBERED else []
    return notes if every == 1 else [*notes, f"One name per {every} classes."]


_BINS_WIDTH, _BINS_HEIGHT = 4.6, 5.4
_ACCURACY, _GAP, _COUNTS = "#7a9cc6", "#c2410c", "#9a9a9a"


def draw_calibration(
    confidence: np.ndarray,
    accuracy: np.ndarray,
    counts: np.ndarray,
    error: float,
    title: str,
    suffix: str,
    temperature: float = 1,
) -> bytes:
    """A picture with a bar per confidence bin; bins have equal width from 0 to 1. Arrays: (bins,), NaN if empty.

    The bar is the accuracy, hatched up to the mean confidence; below are the counts. error: the expected calibration
    error (ECE), shown in the title. temperature: of the probabilities, shown below unless it is 1.
    """
    heading = f"Expected calibration error {error:.3f}" + (f": {title}" if title else "")
    scaled = f"\nwith temperature {temperature:.3g}" if temperature != 1 else ""
    return figure_bytes(lambda: _draw_bins(confidence, accuracy, counts, heading, scaled), suffix)


def _draw_bins(confidence: np.ndarray, accuracy: np.ndarray, counts: np.ndarray, title: str, scaled: str) -> Figure:
    figure = Figure(figsize=(_BINS_WIDTH, _BINS_HEIGHT), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3.4, 1))
    write_title(figure, title)
    width, full = 1 / len(counts), counts > 0
    left = np.arange(len(counts)) / len(counts)
    solid: dict[str, Any] = {"align": "edge", "edgecolor": look().colors.paper, "linewidth": 0.8}
    upper.bar(left[full], accuracy[full], width, color=_ACCURACY, label="accuracy", **solid)
    low, high = np.minimum(confidence, accuracy)[full], np.maximum(confidence, accuracy)[full]
    hatched: dict[str, Any] = {"align": "edge", "facecolor": "none", "edgecolor": _GAP, "hatch": "////"}
    upper.bar(left[full], high - low, width, bottom=low, label="gap to confidence", linewidth=0.8, **hatched)
    upper.plot((0, 1), (0, 1), color=look().colors.ink, linestyle="--", linewidth=1, label="perfect calibration")
    upper.set_ylim(0, 1)
    upper.set_ylabel("accuracy")
    placed: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    upper.legend(ncols=3, frameon=False, handlelength=1.6, columnspacing=1.2, **placed)
    lower.bar(left, counts, width, color=_COUNTS, **solid)
    lower.set_xlabel(f"confidence: probability of the most probable class{scaled}")
    lower.set_ylabel("examples")
    lower.set_xlim(0, 1)
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
    return figure

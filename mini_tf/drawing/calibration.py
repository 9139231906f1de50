"""Reliability diagram of a classifier's calibration, for a file. Source: Guo et al. 2017, arXiv:1706.04599."""

from typing import Any

import numpy as np

from mini_tf.drawing.canvas import figure_bytes, write_title
from mini_tf.drawing.look import look
from mini_tf.drawing.plotting import Axes, Figure

_WIDTH, _HEIGHT = 4.6, 5.4
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
    if not (len(confidence) == len(accuracy) == len(counts) > 0):
        raise ValueError(
            f"numbers of bins must be equal and positive: {len(confidence)}, {len(accuracy)}, {len(counts)}"
        )
    heading = f"Expected calibration error {error:.3f}" + (f": {title}" if title else "")
    scaled = f"\nwith temperature {temperature:.3g}" if temperature != 1 else ""
    return figure_bytes(lambda: _draw(confidence, accuracy, counts, heading, scaled), suffix)


def _draw(confidence: np.ndarray, accuracy: np.ndarray, counts: np.ndarray, title: str, scaled: str) -> Figure:
    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3.4, 1))
    write_title(figure, title)
    bins = len(counts)
    left, full = np.arange(bins) / bins, counts > 0
    _bars(upper, left[full], 1 / bins, confidence[full], accuracy[full])
    lower.bar(left, counts, 1 / bins, align="edge", color=_COUNTS, edgecolor=look().colors.paper, linewidth=0.8)
    lower.set_xlabel(f"confidence: probability of the most probable class{scaled}")
    lower.set_ylabel("examples")
    lower.set_xlim(0, 1)
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
    return figure


def _bars(axes: Axes, left: np.ndarray, width: float, confidence: np.ndarray, accuracy: np.ndarray) -> None:
    axes.bar(
        left,
        accuracy,
        width,
        align="edge",
        color=_ACCURACY,
        edgecolor=look().colors.paper,
        linewidth=0.8,
        label="accuracy",
    )
    low, high = np.minimum(confidence, accuracy), np.maximum(confidence, accuracy)
    gap: dict[str, Any] = {"facecolor": "none", "edgecolor": _GAP, "hatch": "////", "linewidth": 0.8}
    axes.bar(left, high - low, width, bottom=low, align="edge", label="gap to confidence", **gap)
    axes.plot((0, 1), (0, 1), color=look().colors.ink, linestyle="--", linewidth=1, label="perfect calibration")
    axes.set_ylim(0, 1)
    axes.set_ylabel("accuracy")
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=3,
        frameon=False,
        borderaxespad=0.2,
        handlelength=1.6,
        columnspacing=1.2,
    )

"""Calibration of the model's confidence: a reliability diagram, for a file.

Where bars end on the diagonal, predictions of 70 % are right in 70 % of all cases. Source: Guo et al. 2017, arXiv:1706.04599.
"""

from typing import Any

import numpy as np

from mini_tf.drawing.canvas import TITLE, cut_to, to_bytes
from mini_tf.drawing.plotting import Axes, Figure

_WIDTH, _HEIGHT = 4.6, 5.4
_RIGHT, _GAP, _MANY = "#7a9cc6", "#c2410c", "#9a9a9a"


def draw_calibration(confidence: np.ndarray, accuracy: np.ndarray, counts: np.ndarray, error: float, title: str, suffix: str) -> bytes:
    """A bar for each of equally wide bins from 0 to 1, (bins,) each, NaN where a bin is empty, as a "png" or "svg".

    A bar is the accuracy; what lies between it and the mean confidence is hatched; below stands how many texts each bin has.
    `error`: the expected calibration error, told in the title.
    """
    if not (len(confidence) == len(accuracy) == len(counts) > 0):
        raise ValueError(f"bins must be as many, one or more: {len(confidence)}, {len(accuracy)}, {len(counts)}")
    headline = f"Expected calibration error {error:.3f}" + (f": {title}" if title else "")
    return to_bytes(lambda: _drawn(confidence, accuracy, counts, headline), suffix)


def _drawn(confidence: np.ndarray, accuracy: np.ndarray, counts: np.ndarray, title: str) -> Figure:
    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3.4, 1))
    figure.suptitle(cut_to(title, _WIDTH - 0.3, TITLE), fontsize=TITLE, x=0.02, ha="left")
    bins = len(counts)
    left, full = np.arange(bins) / bins, counts > 0
    _bars(upper, left[full], 1 / bins, confidence[full], accuracy[full])
    lower.bar(left, counts, 1 / bins, align="edge", color=_MANY, edgecolor="white", linewidth=0.8)
    lower.set_xlabel("confidence: probability of the most probable class")
    lower.set_ylabel("texts")
    lower.set_xlim(0, 1)
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
    return figure


def _bars(axes: Axes, left: np.ndarray, width: float, confidence: np.ndarray, accuracy: np.ndarray) -> None:
    axes.bar(left, accuracy, width, align="edge", color=_RIGHT, edgecolor="white", linewidth=0.8, label="accuracy")
    low, high = np.minimum(confidence, accuracy), np.maximum(confidence, accuracy)
    gap: dict[str, Any] = {"facecolor": "none", "edgecolor": _GAP, "hatch": "////", "linewidth": 0.8}
    axes.bar(left, high - low, width, bottom=low, align="edge", label="gap to the mean confidence", **gap)
    axes.plot((0, 1), (0, 1), color="black", linestyle="--", linewidth=1, label="ideal")
    axes.set_ylim(0, 1)
    axes.set_ylabel("accuracy")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, borderaxespad=0.2, handlelength=1.6, columnspacing=1.2)

"""Which classes are predicted for which true ones: a confusion matrix, for a file and for a terminal.

A cell's colour is its share of its row, so that a rare class is seen as well as a common one; in a file the number is how often.
"""

from collections.abc import Sequence
from math import ceil

import numpy as np
from rich.text import Text

from mini_tf.drawing.canvas import EDGE, LINE, LONGEST, SMALL, TITLE, add_scale, headline, paint, place, text_width, titled, to_bytes
from mini_tf.drawing.glyphs import figure_caption
from mini_tf.drawing.page import add_sentence, closed, page
from mini_tf.drawing.panel import Panel, Scale
from mini_tf.drawing.plotting import Figure
from mini_tf.drawing.terminal import heat_map, table

_SHARE = Scale(label="share of the true class")
_LONGEST_NAME = 32
_MOST_NUMBERED = 40
"""Classes up to which a file's cells are wide enough for their counts."""
_MOST_LISTED = 20
"""Confusions that a terminal lists where the matrix does not fit."""


def draw_confusion(counts: np.ndarray, names: Sequence[str], title: str, suffix: str) -> bytes:
    """Counts (C, C) of true classes (rows) and predicted ones (columns), as a "png" or "svg"; rows of classes without texts are hatched."""
    _must_fit(counts, names)
    return to_bytes(lambda: _drawn(counts, names, title), suffix)


def confusion_text(counts: np.ndarray, names: Sequence[str], title: str, *, colored: bool, width: int) -> Text:
    """The shares of each row in hundredths; where the terminal is too narrow for all classes, the most frequent confusions instead."""
    _must_fit(counts, names)
    if max(8, width // 5) + 1 + 4 * len(names) > width:
        return _listed(counts, names, title, colored=colored, width=width)
    looks = "Rows: true classes; columns: predicted classes. Values: shares of the true class."
    panel = Panel(title, names, names, shares(counts), looks, tokens=False)
    return heat_map(panel, _SHARE, colored=colored, width=width, values=True, max_rows=len(names))


def shares(counts: np.ndarray) -> np.ndarray:
    """Counts as shares of their row; NaN where the row has none."""
    totals, part = counts.sum(axis=1, keepdims=True), np.full(counts.shape, np.nan)
    np.divide(counts, totals, out=part, where=totals > 0)
    return part


def _listed(counts: np.ndarray, names: Sequence[str], title: str, *, colored: bool, width: int) -> Text:
    off = np.where(np.eye(len(names), dtype=bool), 0, counts)
    order = np.argsort(-off, axis=None, kind="stable")
    found = [divmod(int(cell), len(names)) for cell in order[:_MOST_LISTED] if off.flat[cell]]
    part = shares(counts)
    rows = [(names[row], names[column], str(counts[row, column]), float(part[row, column])) for row, column in found]
    text = page(title, width)
    text.append_text(table(("true", "predicted", "count", "share"), rows, colored=colored, width=width)).append("\n")
    left = np.count_nonzero(off) - len(found)
    rest = f"the {len(found)} most frequent of {len(found) + left} shown; --confusion FILE.png for all" if left else "all shown"
    add_sentence(text, f"Confusions of {len(names)} classes: {rest}.", width)
    return closed(text)


def _drawn(counts: np.ndarray, names: Sequence[str], title: str) -> Figure:
    cell = _cell(counts)
    every = ceil(LINE / cell - 1e-9)
    shown = range(0, len(names), every)
    rows = [figure_caption(f"{figure_caption(names[i], _LONGEST_NAME)} ({counts[i].sum()})") for i in shown]
    columns = [figure_caption(names[i], _LONGEST_NAME) for i in shown]
    left, below = (0.1 + max(map(text_width, words)) for words in (rows, columns))
    size = len(names) * cell
    notes = _notes(len(names), every)
    left += EDGE + LINE + 0.05
    top = 0.45 + LINE * len(notes) + 0.1
    words = max([min(text_width(headline(title), TITLE), 6.0), *map(text_width, notes)])
    width = max(left + size + 0.9, 2 * EDGE + words)
    figure = titled(width, top + max(size, 1.0) + below + LINE + 0.2, title, notes, first_note=0.38)
    axes = place(figure, left, top, size, size)
    numbers = {(row, column): str(counts[row, column]) for row, column in np.argwhere(counts)} if len(names) <= _MOST_NUMBERED else {}
    paint(axes, shares(counts), _SHARE, numbers)
    axes.set_yticks(shown, rows)
    axes.set_xticks(shown, columns, rotation=90)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class (count)")
    add_scale(figure, _SHARE, left + size + 0.12, top, min(max(size, 1.0), 3.0))
    return figure


def _cell(counts: np.ndarray) -> float:
    """Inches: as wide as the longest number while there are few classes, then a line of words, then as fits."""
    n = len(counts)
    if n <= _MOST_NUMBERED:
        return max(0.3, 1.4 / n, text_width(str(counts.max()), SMALL) + 0.1)
    return min(max(LINE, 7.0 / n), LONGEST / n)


def _notes(n: int, every: int) -> list[str]:
    notes = ["Numbers: counts. Colours: share of the true class."] if n <= _MOST_NUMBERED else []
    return notes if every == 1 else [*notes, f"Every {every}th class is named."]


def _must_fit(counts: np.ndarray, names: Sequence[str]) -> None:
    if not names or counts.shape != (len(names), len(names)):
        raise ValueError(f"counts: {counts.shape} must be a row and a column for each of {len(names)} names, one or more")

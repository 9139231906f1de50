"""Attention weights of one query in all heads, for a file.

As in figures 3 to 5 of Vaswani et al. 2017, arXiv:1706.03762: lines connect the query (top) with its keys (bottom),
with a color per head and opacity by weight. Squares below show the same weights, a row per head and a column per key,
since lines may overlap.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

from mini_tf.drawing.canvas import (
    LINE_HEIGHT,
    MARGIN,
    MAX_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    add_axes,
    distinct_colors,
    figure_bytes,
    short_caption,
    text_width,
    titled_figure,
    wrap_caption,
)
from mini_tf.drawing.glyphs import figure_caption, figure_label
from mini_tf.drawing.panel import QueryWeights
from mini_tf.drawing.plotting import Axes, Figure, LineCollection

_MAX_LABEL = 18
_LINES_HEIGHT = 1.6
_SQUARE = 0.13
_MIN_WEIGHT = 0.01
_MAX_LINES = 60
"""More lines could not be distinguished."""


def draw_query_weights(data: QueryWeights, suffix: str) -> bytes:
    """Draw lines for the 60 largest weights of at least 0.01; of more than about 180 heads every n-th is named."""
    return figure_bytes(lambda: _draw(data), suffix)


def _draw(data: QueryWeights) -> Figure:
    heads, tokens = data.weights.shape
    names = [figure_caption(head, 12) for head in data.heads]
    words = [figure_label(token, _MAX_LABEL) for token in data.tokens]
    label_height = 0.1 + max(map(text_width, [*words, figure_label(data.query, _MAX_LABEL)]))
    left = MARGIN + 0.1 + max(map(text_width, names), default=0.0)
    pitch = min(0.26, MAX_SIZE / max(tokens, 1))
    title = short_caption(f"{data.title}: {figure_label(data.query, _MAX_LABEL)}")
    width = min(MAX_SIZE + 2, max(left + tokens * pitch + MARGIN, text_width(title, TITLE_SIZE) + 2 * MARGIN))
    drawn = _strongest(data.weights)
    notes = _notes(data, len(drawn), width - 2 * MARGIN)
    square = min(_SQUARE, (MAX_SIZE - _LINES_HEIGHT - 2 * label_height - LINE_HEIGHT * len(notes)) / max(heads, 1))
    top, strip = 0.45 + LINE_HEIGHT * len(notes) + label_height, heads * square
    figure = titled_figure(width, top + _LINES_HEIGHT + strip + label_height + 0.1, title, notes)
    lines = add_axes(figure, left, top, tokens * pitch, _LINES_HEIGHT)
    squares = add_axes(figure, left, top + _LINES_HEIGHT, tokens * pitch, strip)
    _draw_lines(lines, data, drawn)
    if data.query_index is None:
        _write_rotated(lines, (_middle(tokens), 1.0), figure_label(data.query, _MAX_LABEL))
    else:
        for number, word in enumerate(words):
            _write_rotated(lines, (number, 1.0), word, "black" if number == data.query_index else "#a0a0a0")
    _draw_squares(squares, data.weights)
    for number, word in enumerate(words):
        _write_rotated(squares, (number, 0.0), word)
    colors, every = distinct_colors(heads), ceil(_SQUARE / square)
    for number in range(0, heads, every):
        darkened = [0.75 * part for part in colors[number][:3]]
        squares.text(-0.8, number, names[number], ha="right", va="center", color=darkened, fontsize=TEXT_SIZE)
    return figure


def _notes(data: QueryWeights, n_drawn: int, width: float) -> list[str]:
    """The lines below the title: the text, and a legend of lines and squares."""
    n = int((data.weights >= _MIN_WEIGHT).sum())
    lines = f"the {n_drawn} largest of {n} weights" if n_drawn < n else f"weights of at least {_MIN_WEIGHT}"
    legend = f"Lines: {lines}. Squares: all attention weights, linear from 0 (white) to 1 (full colour)."
    return [*(wrap_caption(data.text, width, 2) if data.text else []), *wrap_caption(legend, width, 3)]


def _strongest(weights: np.ndarray) -> list[tuple[int, int, float]]:
    """Head, token and weight of each line, the largest weight last, so that it is on top; NaN is not drawn."""
    drawn = [
        (int(head), int(token), float(weights[head, token])) for head, token in np.argwhere(weights >= _MIN_WEIGHT)
    ]
    return sorted(drawn, key=lambda one: one[2])[-_MAX_LINES:]


def _draw_lines(axes: Axes, data: QueryWeights, drawn: Sequence[tuple[int, int, float]]) -> None:
    heads, tokens = data.weights.shape
    colors = distinct_colors(heads)
    begin = _middle(tokens) if data.query_index is None else data.query_index
    # Lines of different heads end side by side within the token's column.
    ends = [[(begin, 1.0), (token + 0.5 * (head / max(1, heads - 1) - 0.5), 0.0)] for head, token, _ in drawn]
    shades = [(*colors[head][:3], min(1.0, weight)) for head, _, weight in drawn]
    axes.add_collection(
        LineCollection(ends, colors=shades, linewidths=[0.6 + 1.8 * min(1.0, weight) for _, _, weight in drawn])
    )
    axes.set(xlim=(-0.5, tokens - 0.5), ylim=(0, 1))
    axes.axis("off")


def _draw_squares(axes: Axes, weights: np.ndarray) -> None:
    heads, tokens = weights.shape
    colors = np.array([color[:3] for color in distinct_colors(heads)]).reshape(heads, 1, 3)
    strength = np.clip(np.nan_to_num(weights), 0, 1)[:, :, None]
    axes.imshow(1 - strength * (1 - colors), interpolation="none", aspect="auto")
    axes.set_xticks(np.arange(1, tokens) - 0.5, minor=True)
    axes.grid(which="minor", axis="x", color="#dddddd", linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("#dddddd")


def _middle(tokens: int) -> float:
    """x of a query that is not among the tokens."""
    return (tokens - 1) / 2


def _write_rotated(axes: Axes, at: tuple[float, float], word: str, color: str = "black") -> None:
    """Write a rotated word just above the axes' upper edge or below the lower one."""
    away, side = (2, "bottom") if at[1] else (-3, "top")
    placed: dict[str, Any] = {
        "xycoords": axes.get_xaxis_transform(),
        "xytext": (0, away),
        "textcoords": "offset points",
    }
    axes.annotate(word, at, rotation=90, ha="center", va=side, color=color, **placed)

"""One word over all heads, as figures 3 to 5 of "Attention is all you need" draw it (Vaswani et al. 2017, arXiv:1706.03762).

The words stand twice, read upwards; lines lead from the one word above to what it looks at below, a colour a head, the stronger the more
weight. Where lines of several heads lie on each other, the squares under them tell them apart: a row a head, a column a word.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

from mini_tf.drawing.canvas import EDGE, LINE, LONGEST, TITLE, WORD, headline, line_colors, place, text_width, titled, to_bytes, wrapped
from mini_tf.drawing.glyphs import figure_caption, figure_label
from mini_tf.drawing.panel import Fan
from mini_tf.drawing.plotting import Axes, Figure, LineCollection

_LONGEST_WORD = 18
_LINES = 1.6
_SQUARE = 0.13
_FAINTEST = 0.01
_MOST_LINES = 60
"""More of them could not be told apart."""


def draw_fan(fan: Fan, suffix: str) -> bytes:
    """Lines for the 60 largest weights of at least 0.01; where there are more heads than room (about 180), every n-th is named."""
    return to_bytes(lambda: _drawn(fan), suffix)


def _drawn(fan: Fan) -> Figure:
    heads, tokens = fan.weights.shape
    names = [figure_caption(head, 12) for head in fan.heads]
    words = [figure_label(token, _LONGEST_WORD) for token in fan.tokens]
    tall = 0.1 + max(map(text_width, [*words, figure_label(fan.query, _LONGEST_WORD)]))
    left = EDGE + 0.1 + max(map(text_width, names), default=0.0)
    pitch = min(0.26, LONGEST / max(tokens, 1))
    title = headline(f"{fan.title}: {figure_label(fan.query, _LONGEST_WORD)}")
    width = min(LONGEST + 2, max(left + tokens * pitch + EDGE, text_width(title, TITLE) + 2 * EDGE))
    seen = _strongest(fan.weights)
    notes = _notes(fan, len(seen), width - 2 * EDGE)
    square = min(_SQUARE, (LONGEST - _LINES - 2 * tall - LINE * len(notes)) / max(heads, 1))
    top, strip = 0.45 + LINE * len(notes) + tall, heads * square
    figure = titled(width, top + _LINES + strip + tall + 0.1, title, notes)
    lines = place(figure, left, top, tokens * pitch, _LINES)
    squares = place(figure, left, top + _LINES, tokens * pitch, strip)
    _draw_lines(lines, fan, seen)
    if fan.query_index is None:
        _write_upwards(lines, (_middle(tokens), 1.0), figure_label(fan.query, _LONGEST_WORD))
    else:
        for number, word in enumerate(words):
            _write_upwards(lines, (number, 1.0), word, "black" if number == fan.query_index else "#a0a0a0")
    _draw_squares(squares, fan.weights)
    for number, word in enumerate(words):
        _write_upwards(squares, (number, 0.0), word)
    colors, every = line_colors(heads), ceil(_SQUARE / square)
    for number in range(0, heads, every):
        darkened = [0.75 * part for part in colors[number][:3]]
        squares.text(-0.8, number, names[number], ha="right", va="center", color=darkened, fontsize=WORD)
    return figure


def _notes(fan: Fan, drawn: int, width: float) -> list[str]:
    """The lines under the title: the text, and what lines and squares mean."""
    n = int((fan.weights >= _FAINTEST).sum())
    lines = f"the {drawn} largest of {n} weights" if drawn < n else f"weights of at least {_FAINTEST}"
    said = f"Lines: {lines}. Squares: every weight, linear from 0 (white) to 1 (full colour)."
    return [*(wrapped(fan.text, width, 2) if fan.text else []), *wrapped(said, width, 3)]


def _strongest(weights: np.ndarray) -> list[tuple[int, int, float]]:
    """Head, token and weight of each line, the strongest last, so that they lie on top; NaN is not drawn."""
    seen = [(int(head), int(token), float(weights[head, token])) for head, token in np.argwhere(weights >= _FAINTEST)]
    return sorted(seen, key=lambda one: one[2])[-_MOST_LINES:]


def _draw_lines(axes: Axes, fan: Fan, seen: Sequence[tuple[int, int, float]]) -> None:
    heads, tokens = fan.weights.shape
    colors = line_colors(heads)
    begin = _middle(tokens) if fan.query_index is None else fan.query_index
    # The heads' lines end a little beside each other, within the word's own column.
    ends = [[(begin, 1.0), (token + 0.5 * (head / max(1, heads - 1) - 0.5), 0.0)] for head, token, _ in seen]
    shades = [(*colors[head][:3], min(1.0, weight)) for head, _, weight in seen]
    axes.add_collection(LineCollection(ends, colors=shades, linewidths=[0.6 + 1.8 * min(1.0, weight) for _, _, weight in seen]))
    axes.set(xlim=(-0.5, tokens - 0.5), ylim=(0, 1))
    axes.axis("off")


def _draw_squares(axes: Axes, weights: np.ndarray) -> None:
    heads, tokens = weights.shape
    colors = np.array([color[:3] for color in line_colors(heads)]).reshape(heads, 1, 3)
    strength = np.clip(np.nan_to_num(weights), 0, 1)[:, :, None]
    axes.imshow(1 - strength * (1 - colors), interpolation="none", aspect="auto")
    axes.set_xticks(np.arange(1, tokens) - 0.5, minor=True)
    axes.grid(which="minor", axis="x", color="#dddddd", linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("#dddddd")


def _middle(tokens: int) -> float:
    """Where a query stands that is none of the tokens."""
    return (tokens - 1) / 2


def _write_upwards(axes: Axes, at: tuple[float, float], word: str, color: str = "black") -> None:
    """A word that is read upwards, some points above the axes' upper edge or below the lower one."""
    away, side = (2, "bottom") if at[1] else (-3, "top")
    placed: dict[str, Any] = {"xycoords": axes.get_xaxis_transform(), "xytext": (0, away), "textcoords": "offset points"}
    axes.annotate(word, at, rotation=90, ha="center", va=side, color=color, **placed)

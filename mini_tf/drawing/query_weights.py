"""Attention weights of one query in all heads, for a file.

As in figures 3 to 5 of Vaswani et al. 2017, arXiv:1706.03762: lines connect the query (top) with its keys (bottom),
with a color per layer, or per head of a single layer. The map below has the same weights, a row per head and a column
per key, since lines may overlap.
"""

from collections.abc import Sequence
from itertools import groupby
from math import ceil
from typing import Any

import numpy as np

from mini_tf.drawing.canvas import (
    COLORBAR_WIDTH,
    MARGIN,
    MAX_SIZE,
    MIN_WIDTH,
    Heading,
    add_axes,
    add_colorbar,
    distinct_colors,
    draw_heat_map,
    figure_bytes,
    headed_figure,
    text_width,
    write_line,
)
from mini_tf.drawing.look import look
from mini_tf.drawing.panel import QueryWeights
from mini_tf.drawing.plotting import Axes, Figure, LineCollection, figure_caption, figure_label

_MAX_LABEL = 18
_LINES_HEIGHT = 1.6
_ROW, _LAYER_GAP = 0.15, 0.05
_SWATCH = 0.07
"""Width of the colors beside the map."""
_MIN_WEIGHT = 0.01
_MAX_LINES = 60
"""More lines could not be distinguished."""


def draw_query_weights(data: QueryWeights, suffix: str) -> bytes:
    """Draw lines for the 60 largest weights of at least 0.01; of more than about 160 heads every n-th is named."""
    return figure_bytes(lambda: _draw(data), suffix)


def _draw(data: QueryWeights) -> Figure:
    heads, tokens = data.weights.shape
    layers = [[*members] for _, members in groupby(range(heads), key=lambda head: data.heads[head][0])]
    words, query = [figure_label(token, _MAX_LABEL) for token in data.tokens], figure_label(data.query, _MAX_LABEL)
    label_height, of_query = (0.1 + max(map(text_width, of)) for of in ([*words, query], [query]))
    above = of_query if data.query_index is None else label_height
    named = ([figure_caption(name, 12) for name in names] for names in zip(*data.heads, strict=True))
    left = MARGIN + _SWATCH + 0.22 + sum(max(map(text_width, names)) for names in named)
    wide = (MIN_WIDTH - left - COLORBAR_WIDTH) / max(tokens, 1)
    pitch = min(max(0.26, min(wide, 0.5)), MAX_SIZE / max(tokens, 1))
    width = max(left + tokens * pitch + COLORBAR_WIDTH, MIN_WIDTH)
    drawn = _strongest(data.weights)
    heading = Heading.of(f"{data.title}: {figure_label(data.query, 60)}", data.text, _notes(data, len(drawn)), width)
    room = MAX_SIZE - _LINES_HEIGHT - 2 * label_height - _LAYER_GAP * len(layers) - heading.height
    row = min(_ROW, room / heads)
    strip = heads * row + _LAYER_GAP * len(layers)
    figure = headed_figure(width, above + _LINES_HEIGHT + strip + label_height + 0.15, heading)
    top, colors = heading.height + 0.05 + above, _colors(data, layers)
    lines = add_axes(figure, left, top, tokens * pitch, _LINES_HEIGHT)
    _draw_lines(lines, data, drawn, colors)
    if data.query_index is None:
        _write_rotated(lines, (_middle(tokens), 1.0), query, look().colors.ink)
    for number, word in enumerate(words if data.query_index is not None else ()):
        is_query = number == data.query_index
        _write_rotated(lines, (number, 1.0), word, look().colors.ink if is_query else look().colors.muted)
    below = top + _LINES_HEIGHT
    for members in layers:
        lowest = _draw_layer(figure, data, members, colors, (left, below + _LAYER_GAP, tokens * pitch, row))
        below += _LAYER_GAP + len(members) * row
    for number, word in enumerate(words):
        _write_rotated(lowest, (number, 0.0), word, look().colors.ink)
    add_colorbar(figure, data.scale, left + tokens * pitch + 0.12, top, _LINES_HEIGHT + strip)
    return figure


def _draw_layer(
    figure: Figure,
    data: QueryWeights,
    members: Sequence[int],
    colors: Sequence[tuple[float, ...]],
    place: tuple[float, float, float, float],
) -> Axes:
    """Draw the map of a layer, with the colors of its heads. place: left, top, width, and height of a row."""
    left, top, width, row = place
    axes = add_axes(figure, left, top, width, len(members) * row)
    draw_heat_map(axes, data.weights[members], data.scale)
    axes.set(xticks=[])
    shown = range(0, len(members), ceil(_ROW / row - 1e-9))
    axes.set_yticks(shown, [figure_caption(data.heads[members[n]][1], 12) for n in shown])
    axes.tick_params(axis="y", pad=_SWATCH * 72 + 5)
    swatch = add_axes(figure, left - _SWATCH - 0.03, top, _SWATCH, len(members) * row)
    swatch.imshow([[colors[head]] for head in members], interpolation="none", aspect="auto")
    swatch.axis("off")
    write_line(figure, top + 0.02, figure_caption(data.heads[members[0]][0], 12))
    return axes


def _colors(data: QueryWeights, layers: Sequence[Sequence[int]]) -> list[tuple[float, float, float]]:
    """The color of each head: that of its layer, or its own if there is one layer."""
    if len(layers) == 1:
        return distinct_colors(len(data.heads))
    return [color for members, color in zip(layers, distinct_colors(len(layers)), strict=True) for _ in members]


def _notes(data: QueryWeights, n_drawn: int) -> list[str]:
    """Notes of the figure, and a legend of lines and colors."""
    n = int((data.weights >= _MIN_WEIGHT).sum())
    lines = f"the {n_drawn} largest of {n} weights" if n_drawn < n else f"weights of at least {_MIN_WEIGHT}"
    by = "layer" if len({layer for layer, _ in data.heads}) > 1 else "head"
    return [*data.notes, f"Lines: {lines}, a colour per {by}. Map: all weights."]


def _strongest(weights: np.ndarray) -> list[tuple[int, int, float]]:
    """Head, token and weight of each line, the largest weight last, so that it is on top; NaN is not drawn."""
    drawn = [
        (int(head), int(token), float(weights[head, token])) for head, token in np.argwhere(weights >= _MIN_WEIGHT)
    ]
    return sorted(drawn, key=lambda line: line[2])[-_MAX_LINES:]


def _draw_lines(
    axes: Axes, data: QueryWeights, drawn: Sequence[tuple[int, int, float]], colors: Sequence[tuple[float, ...]]
) -> None:
    """Lines from the query to its keys; width and opacity grow with the weight, up to the end of the scale."""
    heads, tokens = data.weights.shape
    begin = _middle(tokens) if data.query_index is None else data.query_index
    # Lines of different heads end side by side within the token's column.
    ends = [[(begin, 1.0), (token + 0.5 * (head / max(1, heads - 1) - 0.5), 0.0)] for head, token, _ in drawn]
    strengths = [data.scale.fraction(weight) for _, _, weight in drawn]
    shades = [(*colors[head], 0.15 + 0.85 * strength) for (head, _, _), strength in zip(drawn, strengths, strict=True)]
    axes.add_collection(
        LineCollection(ends, colors=shades, linewidths=[0.6 + 1.8 * strength for strength in strengths])
    )
    axes.set(xlim=(-0.5, tokens - 0.5), ylim=(0, 1))
    axes.axis("off")


def _middle(tokens: int) -> float:
    """x of a query that is not among the tokens."""
    return (tokens - 1) / 2


def _write_rotated(axes: Axes, at: tuple[float, float], word: str, color: str) -> None:
    """Write a rotated word just above the axes' upper edge or below the lower one."""
    away, side = (2, "bottom") if at[1] else (-3, "top")
    placed: dict[str, Any] = {
        "xycoords": axes.get_xaxis_transform(),
        "xytext": (0, away),
        "textcoords": "offset points",
    }
    axes.annotate(word, at, rotation=90, ha="center", va=side, color=color, **placed)

"""A metric against each setting of a search: a point per trial, with its interval over seeds."""

from collections.abc import Mapping, Sequence

from mini_tf.drawing.canvas import figure_bytes, write_title
from mini_tf.drawing.glyphs import figure_caption
from mini_tf.drawing.plotting import Figure
from mini_tf.recipe.values import real_number

Points = Sequence[tuple[Mapping[str, str], float, float | None]]
"""Of each trial: its settings, the mean of the metric, and half the width of its interval, None for one run."""
_BEST, _OTHERS = "#c2410c", "#7a9cc6"
_LONGEST = 12
"""Characters of a value below the axis."""
_MOST_TICKS = 8
"""Most numbers that are all written below the axis."""


def draw_searched(points: Points, metric: str, title: str, suffix: str) -> bytes:
    """A picture with a panel per key. The first point is that of the best trial, which is marked."""
    return figure_bytes(lambda: _draw(points, metric, title), suffix)


def _draw(points: Points, metric: str, title: str) -> Figure:
    keys = [*points[0][0]] or [""]
    figure = Figure(figsize=(1.5 + 3.0 * len(keys), 3.4), layout="constrained")
    write_title(figure, title)
    for axes, key in zip(figure.subplots(1, len(keys), squeeze=False, sharey=True)[0], keys, strict=True):
        texts = [settings.get(key, "") for settings, _, _ in points]
        numbers = [number for text in texts if (number := real_number(text)) is not None]
        places = [*dict.fromkeys(texts)]
        x = numbers if len(numbers) == len(texts) else [places.index(text) for text in texts]
        for n in reversed(range(len(points))):  # the best one on top
            style = {"color": _OTHERS if n else _BEST, "marker": "o", "markersize": 4, "capsize": 3}
            axes.errorbar(x[n], points[n][1], points[n][2], **style)
        if x is numbers and min(x) > 0 and max(x) >= 10 * min(x):
            axes.set_xscale("log")
        if x is not numbers or len(places) <= _MOST_TICKS:
            axes.set_xticks(
                [x[texts.index(text)] for text in places], [figure_caption(text, _LONGEST) for text in places]
            )
            axes.minorticks_off()
        axes.set_xlabel(figure_caption(key, 40))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel(metric)
    return figure

"""The maps of a text as a figure for a file: one head, all of them side by side, or one word over all of them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mini_tf.drawing.panel import Fan, Panel, Scale, Sheet
from mini_tf.inspection.choice import kind_name
from mini_tf.inspection.describe import does
from mini_tf.inspection.maps.attention import Sample
from mini_tf.inspection.maps.panels import fan, rows_look, seen

ENDS = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Weights that the colours may end with."""
SHARE = 0.99
"""Of the weights of all maps, at least so many have a colour of their own."""


def figure(sample: Sample, origin: str) -> Sheet | Fan:
    """As many maps as the sample has heads, a line a layer. origin: the run and its step, for the title."""
    text = _text(sample)
    if sample.query is not None:
        one = fan(sample)
        return replace(one, title=f"{origin}: {one.title}", text=text)
    maps = [seen(head) for head in sample.heads]
    if len(maps) == 1:
        [head] = sample.heads
        looks = f"The head {does(head, sample.unit)}. {rows_look(sample)}"
        panel = Panel("", sample.rows(head), sample.columns(head), maps[0], looks)
        return Sheet([panel], _scale(maps), f"{head.place}, {origin}", text=text)
    layers = [head.place[:2] for head in sample.heads]
    across = max(layers.count(layer) for layer in layers)
    even = len(layers) == across * len(set(layers))
    kinds = list(dict.fromkeys(head.place.kind for head in sample.heads))
    named = {kind: kind.partition(".")[0] + " " if len(kinds) > 1 else "" for kind in kinds}
    names = [f"{named[head.place.kind]}L{head.place.layer} H{head.place.head} {head.role or ''}" for head in sample.heads]
    panels = [
        Panel(name, sample.rows(head), sample.columns(head), values, rows_look(sample))
        for name, head, values in zip(names, sample.heads, maps, strict=True)
    ]
    return Sheet(panels, _scale(maps), f"{', '.join(map(kind_name, kinds))}, {origin}", across if even else None, text)


def _text(sample: Sample) -> str:
    return " → ".join(side.given.text for side in sample.sides.read)


def _scale(maps: Sequence[np.ndarray]) -> Scale:
    """One for all maps. Of many tokens each gets little: from 0 to 1 most maps would be blank."""
    weights = np.concatenate([values[~np.isnan(values)] for values in maps])
    most = float(np.quantile(weights, SHARE))
    high = next((end for end in ENDS if most <= end), ENDS[-1])
    return Scale(high=high, open_end=bool(weights.max() > 1.001 * high))

"""The maps of a text as a figure for a file: one head, all of them side by side, or one word over all of them."""

from mini_tf.drawing.panel import Fan, Panel, Scale, Sheet
from mini_tf.inspection.describe import does
from mini_tf.inspection.maps.attention import Sample
from mini_tf.inspection.maps.panels import fan, rows_look, seen

FEW = 3
"""Maps side by side from which on the sentence on what they show fits above them."""
MANY = 24
"""Tokens above which maps side by side are coloured by the square root of their weights."""


def figure(sample: Sample) -> Sheet | Fan:
    """As many maps as the sample has heads, a line a layer."""
    if sample.query is not None:
        return fan(sample)
    if len(sample.heads) == 1:
        [head] = sample.heads
        panel = Panel("", sample.rows(head), sample.columns(head), seen(head), rows_look(sample))
        return Sheet([panel], Scale(), f"{head.place} {does(head, sample.unit)}")
    layers = [head.place[:2] for head in sample.heads]
    across = max(layers.count(layer) for layer in layers)
    even = len(layers) == across * len(set(layers))
    kinds = list(dict.fromkeys(head.place.kind for head in sample.heads))
    named = {kind: kind.partition(".")[0] + " " if len(kinds) > 1 else "" for kind in kinds}
    names = [f"{named[head.place.kind]}{head.place.layer}.{head.place.head} {head.role or ''}" for head in sample.heads]
    title, looks = f"{', '.join(kinds)}, layer.head.", rows_look(sample)
    if len(kinds) == 1 and across >= FEW:  # where few maps stand side by side it would be wider than they
        title, looks = f"{title} {looks}", ""
    panels = [
        Panel(name, sample.rows(head), sample.columns(head), seen(head), looks) for name, head in zip(names, sample.heads, strict=True)
    ]
    # Of many tokens each gets little: on a linear scale most maps would be black.
    return Sheet(panels, Scale(root=max(len(panel.columns) for panel in panels) > MANY), title, across if even else None)

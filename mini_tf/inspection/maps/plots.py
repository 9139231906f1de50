"""Figures of a sample for files: one head, all heads side by side, or one query in all heads."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mini_tf.drawing.panel import Panel, PanelGrid, QueryWeights, Scale
from mini_tf.inspection.head_selection import kind_name
from mini_tf.inspection.maps.attention import Sample
from mini_tf.inspection.maps.panels import axes_legend, head_legend, masked_weights, query_weights

ENDS = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Possible upper ends of the color scale."""
SHARE = 0.99
"""Quantile of the weights that the color scale must cover."""


def plot(sample: Sample, run_and_step: str) -> PanelGrid | QueryWeights:
    """One map per head, with its role, one row of maps per layer; `run_and_step` is for the title."""
    text = " → ".join(one.input.text for one in sample.texts.all)
    if sample.query is not None:
        of_query = query_weights(sample)
        return replace(of_query, title=f"{run_and_step}: {of_query.title}", text=text)
    maps = [masked_weights(head) for head in sample.heads]
    if len(maps) == 1:
        [head] = sample.heads
        panel = Panel("", sample.rows(head), sample.columns(head), maps[0], head_legend(head, sample))
        return PanelGrid([panel], scale_of(maps), f"{head.index}, {run_and_step}", text=text)
    layers = [head.index[:2] for head in sample.heads]
    across = max(layers.count(layer) for layer in layers)
    even = len(layers) == across * len(set(layers))
    kinds = list(dict.fromkeys(head.index.kind for head in sample.heads))
    prefix = {kind: kind.partition(".")[0] + " " if len(kinds) > 1 else "" for kind in kinds}
    names = [
        f"{prefix[head.index.kind]}L{head.index.layer} H{head.index.head} {head.role or ''}" for head in sample.heads
    ]
    panels = [
        Panel(name, sample.rows(head), sample.columns(head), values, axes_legend(sample))
        for name, head, values in zip(names, sample.heads, maps, strict=True)
    ]
    roles = ", roles on repeated random tokens" if any(head.role for head in sample.heads) else ""
    title = f"{', '.join(map(kind_name, kinds))}, {run_and_step}{roles}"
    return PanelGrid(panels, scale_of(maps), title, across if even else None, text)


def scale_of(maps: Sequence[np.ndarray], label: str = "attention weight") -> Scale:
    """One color scale for all maps; in long texts weights are small, and maps on a scale of 0 to 1 would be blank."""
    weights = np.concatenate([values[~np.isnan(values)] for values in maps])
    most = float(np.quantile(weights, SHARE))
    high = next((end for end in ENDS if most <= end), ENDS[-1])
    return Scale(high=high, label=label, open_end=bool(weights.max() > 1.001 * high))

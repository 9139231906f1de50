"""Statistics of each head's attention softmax: entropy, largest weight, saturation, gradient, range of the scores.

The Jacobian of softmax is dp_i/dz_j = p_i (delta_ij - p_j); its trace sum p(1 - p) is 0 if one weight is 1, so such a
row has no gradient. Computed from the weights, so any mixer is supported. Scaling scores by 1/sqrt(d_k) prevents
saturation: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from math import isnan, nan
from typing import Any

import numpy as np

from mini_tf.drawing.panel import Panel, PanelGrid, Scale
from mini_tf.drawing.terminal import sentence, table
from mini_tf.inspection import PICTURES, TextViewSettings, View, ViewOutput
from mini_tf.inspection._capture import SoftmaxStatistics, softmax_statistics
from mini_tf.inspection._subjects import run_and_step, with_targets
from mini_tf.inspection._texts import capture_heads, tokenize_texts
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained

HEADERS = ("head", "entropy", "normalized", "max p", "saturated", "sum p(1-p)", "range")
LEGEND = (
    "Means over rows with two or more visible keys. entropy: in nats; normalized: divided by ln(visible keys); max p:"
    " largest attention weight; saturated: share of rows with max p over 0.99; sum p(1-p): trace of the softmax"
    " Jacobian; range: largest difference of two attention scores in a row."
)
DRAWN = {
    "normalised": "normalized entropy",
    "largest": "largest weight",
    "saturated": "saturated rows",
    "gradient": "gradient: sum p(1-p)",
}
"""Statistics in a picture: those from 0 to 1."""


class Settings(TextViewSettings):
    """Show how sharp the softmax of every head is: entropy, largest weight, saturation, gradient, score range.

    Encoder-decoder: for each text and its own translation. FILE: a picture of all but the range, a map of layers and
    heads each, or numbers (.json).
    """

    ALIASES = ("entropy", "saturation")
    EXAMPLES = (
        'minitf inspect softmax last "The file is closed."',
        "minitf inspect softmax last -i lines.txt -o softmax.png",
    )
    FILES = (*PICTURES, ".html", ".json")

    def view(self, trained: Trained, output: ViewOutput) -> View:
        """Statistics of every head over the texts and, for an encoder-decoder, their targets.

        Raises UsageFault if no row has two visible keys.
        """
        tokenized = [tokenize_texts(trained, *text) for text in with_targets(trained, self.given_texts, None)]
        heads = softmax_statistics(capture_heads(trained, texts) for texts in tokenized)
        if not any(head.rows for head in heads):
            message = "no token of the texts attends to two tokens, so every attention weight is 1"
            raise UsageFault(message, hint="give a longer text")
        notes = [f"text {number}: {note}" for number, texts in enumerate(tokenized, 1) for note in texts.notes]
        if any(head.underflow for head in heads):
            notes.append("range: > marks a lower bound, since some weights underflowed to 0")
        inputs = [text.input for texts in tokenized for text in texts.all]
        records = [{input.name: input.text, "n_tokens": len(input.ids), "n_cut": input.n_cut} for input in inputs]
        result = {"texts": records, "heads": [vars(head) for head in heads], "notes": notes}
        title = f"Softmax of the attention weights, {run_and_step(trained.folder, self.step)}"
        text = inputs[0].text if len(tokenized) == 1 else f"Means over {len(tokenized)} texts."
        figure = PanelGrid([*_panels(heads)], Scale(label="mean over rows"), title, text, notes)
        return View(result, [partial(table, HEADERS, [*map(_row, heads)]), partial(sentence, LEGEND)], notes, figure)


def _panels(heads: Sequence[SoftmaxStatistics]) -> Iterator[Panel]:
    """A map of each statistic, of layers and heads; NaN where a layer has fewer heads."""
    by_index = {(head.kind, head.layer, head.head): head for head in heads}
    kinds = list(dict.fromkeys(head.kind for head in heads))
    layers = sorted({index[:2] for index in by_index}, key=lambda layer: (kinds.index(layer[0]), layer[1]))
    several, numbers = len(kinds) > 1, sorted({head.head for head in heads})
    names = [f"{kind.partition('.')[0] if several else ''} L{layer}".strip() for kind, layer in layers]
    for statistic, title in DRAWN.items():
        rows = [[getattr(by_index.get((*layer, n)), statistic, nan) for n in numbers] for layer in layers]
        yield Panel(title, names, [f"H{n}" for n in numbers], np.array(rows), tokens=False)


def _row(head: SoftmaxStatistics) -> list[Any]:
    logit_range = nan if isnan(head.logit_range) else f"{'>' if head.underflow else ''}{head.logit_range:.1f}"
    name = f"L{head.layer} H{head.head} {head.kind}"
    return [name, head.entropy, head.normalised, head.largest, head.saturated, head.gradient, logit_range]

"""Statistics of each head's attention softmax: entropy, largest weight, saturation, gradient, range of the scores.

The Jacobian of softmax is dp_i/dz_j = p_i (delta_ij - p_j); its trace sum p(1 - p) is 0 if one weight is 1, so such a
row has no gradient. Computed from the weights, so any mixer is supported. Scaling scores by 1/sqrt(d_k) prevents
saturation: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from math import isnan, nan
from typing import Any

import torch
from torch import Tensor

from mini_tf.drawing.terminal import sentence, table
from mini_tf.inspection import Output, TextViewSettings, View
from mini_tf.inspection._capture import Capture, CapturedAttention
from mini_tf.inspection._heads import normalize
from mini_tf.inspection._targets import with_targets
from mini_tf.inspection._texts import capture_heads, tokenize_texts
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained

SATURATED = 0.99
"""A row whose largest weight is above this has almost no gradient."""
HEADERS = ("head", "entropy", "normalized", "max p", "saturated", "sum p(1-p)", "range")
LEGEND = (
    "Means over rows with two or more visible keys. entropy: in nats; normalized: divided by ln(visible keys); max p:"
    " largest attention weight; saturated: share of rows with max p over 0.99; sum p(1-p): trace of the softmax"
    " Jacobian; range: largest difference of two attention scores in a row."
)


@dataclass(frozen=True)
class SoftmaxStatistics:
    """One head, over the `rows` with two or more visible keys; NaN if there are none.

    Means over the rows: entropy in nats; normalised by ln(visible keys); largest weight; gradient: sum p(1 - p).
    saturated: share of rows whose largest weight is above SATURATED. logit_range: largest difference of two attention
    scores in a row; a lower bound if `underflow`, that is if a weight underflowed to 0. Entropies are of weights scaled
    to sum 1, NaN if a weight is negative or a row sums to 0.
    """

    kind: str
    layer: int
    head: int
    rows: int
    entropy: float
    normalised: float
    largest: float
    saturated: float
    gradient: float
    logit_range: float
    underflow: bool


class Settings(TextViewSettings):
    """Show how sharp the softmax of every head is: entropy, largest weight, saturation, gradient, score range.

    Encoder-decoder: for each text and its own translation.
    """

    EXAMPLES = ('minitf inspect softmax last "The file is closed."',)

    def view(self, trained: Trained, output: Output) -> View:
        """Statistics of every head over the texts and, for an encoder-decoder, their targets.

        Raises UsageFault if no row has two visible keys.
        """
        tokenized = [tokenize_texts(trained, *text) for text in with_targets(trained, self.given_texts, None)]
        heads = softmax_statistics(capture_heads(trained, one) for one in tokenized)
        if not any(head.rows for head in heads):
            raise UsageFault(
                "no token of the texts attends to two tokens, so every attention weight is 1", hint="give a longer text"
            )
        notes = [f"text {number}: {note}" for number, one in enumerate(tokenized, 1) for note in one.notes]
        if any(head.underflow for head in heads):
            notes.append("range: > marks a lower bound, since some weights underflowed to 0")
        inputs = [text.input for one in tokenized for text in one.all]
        records = [{one.name: one.text, "n_tokens": len(one.ids), "n_cut": one.n_cut} for one in inputs]
        result = {"texts": records, "heads": [vars(head) for head in heads], "notes": notes}
        return View(result, [partial(table, HEADERS, [*map(_row, heads)]), partial(sentence, LEGEND)], notes)


def _row(head: SoftmaxStatistics) -> list[Any]:
    logit_range = nan if isnan(head.logit_range) else f"{'>' if head.underflow else ''}{head.logit_range:.1f}"
    name = f"L{head.layer} H{head.head} {head.kind}"
    return [name, head.entropy, head.normalised, head.largest, head.saturated, head.gradient, logit_range]


def softmax_statistics(captures: Iterable[Capture]) -> list[SoftmaxStatistics]:
    """Statistics of every head of a model over the rows of all captures."""
    by_layer: dict[tuple[str, int], list[dict[str, Tensor]]] = {}
    for one in captures:
        for captured in one.attention:
            by_layer.setdefault((captured.kind, captured.layer), []).append(_measure_rows(captured))
    statistics = []
    for (kind, layer), measured in by_layer.items():
        rows = {name: torch.cat([one[name] for one in measured], dim=1) for name in measured[0]}
        statistics += [_summarize(kind, layer, head, rows) for head in range(len(rows["entropy"]))]
    return statistics


def _measure_rows(captured: CapturedAttention) -> dict[str, Tensor]:
    """Statistics (H, rows) of the rows of a layer with two or more visible keys."""
    weights, mask = captured.weights.cpu().double(), captured.mask.cpu()
    lead = torch.ones_like(
        weights[:, 0, :, : captured.lead], dtype=torch.bool
    )  # columns of no token are always visible
    visible = torch.cat([lead, mask.expand(len(weights), -1, -1)], dim=-1)[:, None]  # (B, 1, L, lead + M)
    n_visible = visible.sum(dim=-1)
    p = torch.where(visible, weights, 0.0)
    entropy = torch.special.entr(normalize(p)).sum(dim=-1)
    scores = p.log()  # up to a constant; -inf where p underflowed to 0
    lowest = torch.where(p > 0, scores, torch.inf).amin(dim=-1)
    columns = {
        "entropy": entropy,
        "normalised": entropy / n_visible.double().log(),
        "largest": p.amax(dim=-1),
        "gradient": (p * (1 - p)).sum(dim=-1),
        "logit_range": scores.amax(dim=-1) - lowest,
        "underflow": (visible & (p == 0)).any(dim=-1),
    }
    several = n_visible[:, 0] > 1  # (B, L)
    return {name: column.transpose(0, 1)[:, several] for name, column in columns.items()}  # (B, H, L) -> (H, rows)


def _summarize(kind: str, layer: int, head: int, rows: dict[str, Tensor]) -> SoftmaxStatistics:
    own = {name: column[head] for name, column in rows.items()}
    own["saturated"] = (own["largest"] > SATURATED).double()
    means = {name: own[name].mean().item() for name in ("entropy", "normalised", "largest", "saturated", "gradient")}
    n = len(own["entropy"])
    logit_range = own["logit_range"].amax().item() if n else nan
    return SoftmaxStatistics(
        kind, layer, head, n, **means, logit_range=logit_range, underflow=bool(own["underflow"].any())
    )

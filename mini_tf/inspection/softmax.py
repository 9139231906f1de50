"""How sharp each head's softmax is: entropy, largest weight, saturation, what passes through of a gradient, range of the logits.

The Jacobian of a softmax is dp_i/dz_j = p_i (delta_ij - p_j); its trace, the sum of p(1 - p), is 0 where one weight is 1: such a row
no longer learns. Taken from the weights themselves, so it holds for every mixer that shows them. Source: Vaswani et al. 2017,
arXiv:1706.03762, section 3.2.1, which is why scores are scaled by 1/sqrt(d_k).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import nan
from typing import Any

import torch
from torch import Tensor

from mini_tf.drawing.terminal import sentence, table
from mini_tf.inspection import View
from mini_tf.inspection.capture import Capture, Reading
from mini_tf.inspection.heads import scaled
from mini_tf.inspection.sides import captured, sides_of
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained

SATURATED = 0.99
"""A row whose largest weight is above this has as good as no gradient."""
HEADERS = ("head", "entropy", "normal", "p max", "saturated", "sum p(1-p)", "range")
LEGEND = (
    "Means over the rows that see two tokens or more. entropy in nats, normal by ln(tokens seen); p max the largest weight; saturated the "
    "share of rows with p max over 0.99; sum p(1-p) what passes of a gradient; range the largest difference of two scores in a row."
)


@dataclass(frozen=True)
class Sharpness:
    """One head, over the rows that see two keys or more.

    Means over the rows: entropy in nats, normalised by ln(keys seen), largest weight, gradient (the sum of p(1 - p)); saturated: the
    share of rows whose largest weight is above SATURATED. logit_range: the largest difference of two scores in one row; a lower
    bound where `underflow`: a weight was too small for its number type, so its score is no longer known. NaN without such rows.
    Entropies are those of weights scaled to sum 1, NaN where one is negative or a row has none.
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


def view(trained: Trained, texts: Sequence[tuple[str, str | None]]) -> View:
    """Every head over all of the texts (and of a model of pairs their targets). UsageFault where no token sees two."""
    given = [sides_of(trained, *text) for text in texts]
    heads = sharpness(captured(trained, sides) for sides in given)
    if not any(head.rows for head in heads):
        raise UsageFault("no token of the texts sees two tokens: nothing to choose between", hint="give a longer text")
    notes = [f"text {number}: {note}" for number, one in enumerate(given, 1) for note in one.notes]
    if any(head.underflow for head in heads):
        notes.append("range: a lower bound where marked >; weights too small for their number type have no score")
    read = [side.given for one in given for side in one.read]
    records = [{one.name: one.text, "n_tokens": len(one.ids), "n_cut": one.n_cut} for one in read]
    result = {"texts": records, "heads": [vars(head) for head in heads], "notes": notes}
    return View(result, [partial(table, HEADERS, [*map(_row, heads)]), partial(sentence, LEGEND)], notes)


def _row(head: Sharpness) -> list[Any]:
    logit_range = f"{'>' if head.underflow else ''}{head.logit_range:.1f}"
    name = f"L{head.layer} H{head.head} {head.kind}"
    return [name, head.entropy, head.normalised, head.largest, head.saturated, head.gradient, logit_range]


def sharpness(captures: Iterable[Capture]) -> list[Sharpness]:
    """Every head of a model, over the rows of all captures of it together."""
    parts: dict[tuple[str, int], list[dict[str, Tensor]]] = {}
    for one in captures:
        for reading in one.readings:
            parts.setdefault((reading.kind, reading.layer), []).append(_measured(reading))
    found = []
    for (kind, layer), measured in parts.items():
        rows = {name: torch.cat([one[name] for one in measured], dim=1) for name in measured[0]}
        found += [_summary(kind, layer, head, rows) for head in range(len(rows["entropy"]))]
    return found


def _measured(reading: Reading) -> dict[str, Tensor]:
    """The rows (H, rows) of a layer's heads that see two keys or more: of each what `Sharpness` sums up."""
    weights, keep = reading.weights.cpu().double(), reading.keep.cpu()
    lead = torch.ones_like(weights[:, 0, :, : reading.lead], dtype=torch.bool)  # columns that belong to no token are always seen
    seen = torch.cat([lead, keep.expand(len(weights), -1, -1)], dim=-1)[:, None]  # (B, 1, L, lead + M)
    n_seen = seen.sum(dim=-1)
    p = torch.where(seen, weights, 0.0)
    entropy = torch.special.entr(scaled(p)).sum(dim=-1)
    logits = p.log()  # up to a constant; -inf where p is 0, whose score is not known
    lowest = torch.where(p > 0, logits, torch.inf).amin(dim=-1)
    columns = {
        "entropy": entropy,
        "normalised": entropy / n_seen.double().log(),
        "largest": p.amax(dim=-1),
        "gradient": (p * (1 - p)).sum(dim=-1),
        "logit_range": logits.amax(dim=-1) - lowest,
        "underflow": (seen & (p == 0)).any(dim=-1),
    }
    several = n_seen[:, 0] > 1  # (B, L)
    return {name: column.transpose(0, 1)[:, several] for name, column in columns.items()}  # (B, H, L) -> (H, rows)


def _summary(kind: str, layer: int, head: int, rows: dict[str, Tensor]) -> Sharpness:
    own = {name: column[head] for name, column in rows.items()}
    own["saturated"] = (own["largest"] > SATURATED).double()
    means = {name: own[name].mean().item() for name in ("entropy", "normalised", "largest", "saturated", "gradient")}
    n = len(own["entropy"])
    logit_range = own["logit_range"].amax().item() if n else nan
    return Sharpness(kind, layer, head, n, **means, logit_range=logit_range, underflow=bool(own["underflow"].any()))

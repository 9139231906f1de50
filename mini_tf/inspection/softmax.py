"""How sharp each head's softmax is: entropy, largest weight, saturation, what passes through of a gradient, range of the logits.

The Jacobian of a softmax is dp_i/dz_j = p_i (delta_ij - p_j); its trace, the sum of p(1 - p), is 0 where one weight is 1: such a row
no longer learns. Taken from the weights themselves, so it holds for every mixer that shows them. Source: Vaswani et al. 2017,
arXiv:1706.03762, section 3.2.1, which is why scores are scaled by 1/sqrt(d_k).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import nan

import torch
from torch import Tensor

from mini_tf.inspection.capture import Capture, Reading

SATURATED = 0.99
"""A row whose largest weight is above this has as good as no gradient."""


@dataclass(frozen=True)
class Sharpness:
    """One head, over the rows that see two keys or more.

    Means over the rows: entropy in nats, normalised by ln(keys seen), largest weight, gradient (the sum of p(1 - p)); saturated: the
    share of rows whose largest weight is above SATURATED. logit_range: the largest difference of two scores in one row; a lower
    bound where `underflow`: a weight was too small for its number type, so its score is no longer known. NaN without such rows.
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


def sharpness(captures: Iterable[Capture]) -> list[Sharpness]:
    """Every head of a model, over the rows of all captures of it together."""
    parts: dict[tuple[str, int], list[Tensor]] = {}
    for captured in captures:
        for reading in captured.readings:
            parts.setdefault((reading.kind, reading.layer), []).append(_measured(reading))
    return [
        _summary(kind, layer, head, rows)
        for (kind, layer), measured in parts.items()
        for head, rows in enumerate(torch.cat(measured, dim=1))
    ]


def _measured(reading: Reading) -> Tensor:
    """(H, rows, 6): entropy, normalised, largest, gradient, range of the logits, underflow; of the rows that see two keys or more."""
    weights, keep = reading.weights.cpu().double(), reading.keep.cpu()
    lead = torch.ones_like(weights[:, 0, :, : reading.lead], dtype=torch.bool)  # columns that belong to no token are always seen
    seen = torch.cat([lead, keep.expand(len(weights), -1, -1)], dim=-1)[:, None]  # (B, 1, L, lead + M)
    n_seen = seen.sum(dim=-1).expand(weights.shape[:3])
    p = torch.where(seen, weights, 0.0)
    logs = p.log()  # -inf where p is 0
    known = torch.where(p > 0, logs, torch.nan)
    columns = [
        entropy := -(p * logs).nan_to_num(0.0).sum(dim=-1),
        entropy / n_seen.double().log(),
        p.amax(dim=-1),
        (p * (1 - p)).sum(dim=-1),
        known.nan_to_num(-torch.inf).amax(dim=-1) - known.nan_to_num(torch.inf).amin(dim=-1),
        (seen & (p == 0)).any(dim=-1),
    ]
    several = n_seen[:, 0] > 1  # (B, L)
    return torch.stack([column.double() for column in columns], dim=-1).transpose(1, 2)[several].transpose(0, 1)


def _summary(kind: str, layer: int, head: int, rows: Tensor) -> Sharpness:
    if len(rows) == 0:
        return Sharpness(kind, layer, head, 0, nan, nan, nan, nan, nan, nan, False)
    entropy, normalised, largest, gradient, _, _ = rows.mean(dim=0).tolist()
    saturated = (rows[:, 2] > SATURATED).double().mean().item()
    logit_range, underflow = rows[:, 4:].amax(dim=0).tolist()
    return Sharpness(kind, layer, head, len(rows), entropy, normalised, largest, saturated, gradient, logit_range, bool(underflow))

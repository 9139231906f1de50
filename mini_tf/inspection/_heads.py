"""Attention heads: which ones are selected, and measures of each on one text.

Rows are queries. Every mean is over the rows with at least two visible keys; with one the weight is always 1.
"""

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mini_tf.inspection._capture import Capture, CapturedAttention
from mini_tf.nn.model_stack import ModelStack
from mini_tf.system.errors import UsageFault


class HeadIndex(NamedTuple):
    """Index of a head: layers count the mixers of a kind from 0, heads those of a layer."""

    kind: str
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{kind_name(self.kind)} L{self.layer} H{self.head}"


def kind_name(kind: str) -> str:
    """Printed name of a kind of attention: decoder.self is "decoder self-attention"."""
    return f"{kind.replace('.', ' ')}-attention"


@dataclass(frozen=True)
class HeadSelection:
    """The options as given; None selects all."""

    kind: str | None = None
    layer: str | None = None
    head: str | None = None

    def select(self, heads: Iterable[HeadIndex]) -> set[HeadIndex]:
        """The selected ones of the model's heads. Raises UsageFault if an option names a missing one."""
        available = list(heads)
        kinds = sorted({index.kind for index in available})
        if self.kind is not None and self.kind not in kinds:
            raise UsageFault(f"--kind {self.kind}: the model has only {', '.join(kinds)}")
        of_kind = [index for index in available if self.kind in (None, index.kind)]
        layers = parse_indices("--layer", self.layer, 1 + max(index.layer for index in of_kind))
        of_layer = [index for index in of_kind if index.layer in layers]
        numbers = parse_indices("--head", self.head, 1 + max(index.head for index in of_layer))
        return {index for index in of_layer if index.head in numbers}


def parse_indices(option: str, value: str | None, count: int) -> set[int]:
    """Indices below `count` in a list such as 0,2-3,-1; None selects all. Raises UsageFault for others."""
    if value is None:
        return set(range(count))
    selected: set[int] = set()
    for part in value.split(","):
        match = re.fullmatch(r"\s*(-?[0-9]{1,6})(?:-(-?[0-9]{1,6}))?\s*", part)
        if match is None:
            raise UsageFault(f"{option} {value}: must be numbers and ranges, such as 0,2-3,-1")
        ends = [int(end) for end in match.groups() if end is not None]
        for end in ends:
            if not -count <= end < count:
                raise UsageFault(f"{option} {value}: {end} is out of range; indices are 0 to {count - 1}")
        first, last = (ends[0] % count, ends[-1] % count)
        if last < first:
            raise UsageFault(f"{option} {value}: the range {part.strip()} is empty")
        selected |= set(range(first, last + 1))
    return selected


def stack_name(stack: ModelStack) -> str:
    """The name of a stack for --stack: encoder, decoder."""
    return stack.attention.partition(".")[0]


def select_stack(stacks: Iterable[ModelStack], name: str | None, kind: str) -> ModelStack:
    """The stack called `encoder` or `decoder`; None: the first. kind: of the model, for the message of a UsageFault."""
    named: Mapping[str, ModelStack] = {stack_name(one): one for one in stacks}
    if name not in (None, *named) and len(named) == 1:
        raise UsageFault(
            f"--stack {name}: a model of kind {kind} has only one stack to show, {next(iter(named))}",
            hint="leave it out",
        )
    if name is not None and name not in named:
        raise UsageFault(f"--stack {name}: must be {' or '.join(sorted(named))}")
    return named[name] if name is not None else next(iter(named.values()))


ROLES = {"previous": "P", "next": "N", "self": "S", "first": "F", "induction": "I", "same": "D", "broad": "B"}
"""Roles and their letters. A head without a role has the letter `NO_ROLE`.

Previous-token, next-token, current-token, first-token (attention sink), induction and duplicate-token head; broad
attention.
"""
NO_ROLE = "·"
_PARTIAL_ROLES = ("first", "induction", "same")
"""Roles that apply to some rows only."""
ROW_SUM_TOLERANCE = 1e-4
SATURATED = 0.99
"""A row whose largest weight is above this has almost no gradient."""

Measures = dict[str, float | int | None]
"""By name, in the order of `measure`; None if no row counts."""


def measure(
    weights: Float[Tensor, "H L M"], visible: Bool[Tensor, "L M"], units: Sequence[Hashable] | None
) -> list[Measures]:
    """Measures of each head on one text.

    units: the tokens (or words), equal if they are the same; None if queries and keys are different sequences, for
    which only entropy, max and first are measured.

    rows       number of rows with at least two visible keys
    entropy    normalized entropy -sum p ln p / ln n of the row p, scaled to sum 1, over n visible keys: 0 to 1
    max        largest attention weight of the row
    distance   sum p |i - j|, in tokens
    previous   attention weight on the previous token; next: on the next token; self: on the token itself
    first      attention weight on the first token, for rows from the third on (before, it is `self` or `previous`)
    induction  attention weight on tokens that follow an earlier occurrence of the row's token
    same       attention weight on other occurrences of the row's token
    row_sum    mean sum of the rows, only if they do not sum to 1

    Each attention weight is a mean over the rows with such a key; first_rows, induction_rows and same_rows count them.
    Entropy and distance are None if a row has a negative weight or sums to 0.
    """
    p, rows = weights.double(), visible.sum(dim=1) >= 2
    i, j = torch.arange(p.shape[1], device=p.device)[:, None], torch.arange(p.shape[2], device=p.device)[None]
    shares = normalize(p)
    entropy = torch.special.entr(shares).sum(dim=-1) / visible.sum(dim=1).double().log()
    measures: dict[str, Sequence[float | int | None]] = {"rows": [int(rows.sum())] * len(p)}
    measures |= {"entropy": _mean(entropy, rows), "max": _mean(p.amax(dim=-1), rows)}
    if units is not None:
        measures["distance"] = _mean((shares * (i - j).abs()).sum(dim=-1), rows)
    for name, mask in ({"first": j == 0} if units is None else _role_masks(units, i, j)).items():
        cells = visible & mask
        counted = rows & cells.any(dim=1)
        measures[name] = _mean((p * cells).sum(dim=-1), counted)
        if name in _PARTIAL_ROLES:
            measures[f"{name}_rows"] = [int(counted.sum())] * len(p)
    sums = p.sum(dim=-1)[:, visible.any(dim=1)]
    if ((sums - 1).abs() > ROW_SUM_TOLERANCE).any():
        measures["row_sum"] = [float(one) for one in sums.mean(dim=1)]
    return [{name: values[head] for name, values in measures.items()} for head in range(len(p))]


def _role_masks(units: Sequence[Hashable], i: Tensor, j: Tensor) -> dict[str, Tensor]:
    """The keys of each role: masks (L, L)."""
    numbers = {unit: number for number, unit in enumerate(dict.fromkeys(units))}
    codes = torch.tensor([numbers[unit] for unit in units], device=i.device)
    same = codes[:, None] == codes[None]
    follows = torch.zeros_like(same)
    follows[:, 1:] = same[:, :-1]
    return {
        "previous": j == i - 1,
        "next": j == i + 1,
        "self": j == i,
        "first": (j == 0) & (i >= 2),
        "induction": follows & (j <= i),
        "same": same & (j != i),
    }


def normalize(p: Tensor) -> Tensor:
    """Rows scaled to sum 1; NaN if a row has negative weights or sums to 0."""
    total = p.sum(dim=-1, keepdim=True)
    fit = (p >= 0).all(dim=-1, keepdim=True) & (total > 0)
    return torch.where(fit, p / total, torch.nan)


def _mean(values: Tensor, rows: Tensor) -> list[float | None]:
    """Mean of (H, L) over the selected rows, by head; None without rows or with a NaN."""
    means = values[:, rows].mean(dim=1)
    return [None if torch.isnan(mean) else float(mean) for mean in means]


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
    of_head = {name: column[head] for name, column in rows.items()}
    of_head["saturated"] = (of_head["largest"] > SATURATED).double()
    means = {
        name: of_head[name].mean().item() for name in ("entropy", "normalised", "largest", "saturated", "gradient")
    }
    n = len(of_head["entropy"])
    logit_range = of_head["logit_range"].amax().item() if n else nan
    return SoftmaxStatistics(
        kind, layer, head, n, **means, logit_range=logit_range, underflow=bool(of_head["underflow"].any())
    )

"""What a head does with a text, in numbers: how evenly it spreads its weight, and how much lies on the places that have a name.

Rows are queries. A row that sees one token only has no choice and tells nothing, so every mean goes over the rows that see at least two.
Sources: roles by a share above one half, Clark et al. 2019, arXiv:1906.04341, section 3; induction, Olsson et al. 2022, arXiv:2209.11895.
"""

from collections.abc import Hashable, Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

ROLES = {"previous": "P", "next": "N", "self": "S", "first": "F", "induction": "I", "same": "D", "broad": "B"}
"""What a head may be called, and its letter; a head without a role has `NO_ROLE`."""
NO_ROLE = "·"
_SOME_ROWS = ("first", "induction", "same")
"""Roles that only some rows can show."""
ROW_SUM_TOLERANCE = 1e-4
LEAST_ROWS = 3
"""Rows that must be able to show a role before a head is called so: with one or two chance would decide."""
LEAST_PART = 0.25
"""For `first`, `induction` and `same` their part of the rows that have a choice, too: what a few rows do says little about the head."""

Measures = dict[str, float | int | None]
"""By name, in the order of `measure`; None where no row of the text can tell."""


def measure(weights: Float[Tensor, "H L M"], visible: Bool[Tensor, "L M"], units: Sequence[Hashable] | None) -> list[Measures]:
    """Each head's measures. `units`: the tokens (or words) that are read, equal where they are the same; None where rows and
    columns are different texts, which leaves only what needs no comparison of the two.

    entropy    -sum p ln p / ln n, p a row's weights scaled to sum 1, n how many tokens it sees: 0 = one token has all, 1 = even
    max        the row's largest weight
    distance   sum p |i - j|: how many tokens away it looks
    previous   weight on the token before; next: on the one after; self: on itself
    first      weight on the first token, by the rows from the third on: to the first two it is `self` or `previous`
    induction  weight on what follows an earlier occurrence of the row's token, by the rows that have one
    same       weight on other occurrences of the row's token, by the rows that have one
    row_sum    what rows sum to, only where that is not 1
    A share counts the rows that see such a place; first_rows, induction_rows and same_rows say how many of the `rows` that have a
    choice these are. Entropy and distance are None where one of the rows has a negative weight, or none at all.
    """
    p, rows = weights.double(), visible.sum(dim=1) >= 2
    i, j = torch.arange(p.shape[1], device=p.device)[:, None], torch.arange(p.shape[2], device=p.device)[None]
    shares = scaled(p)
    entropy = torch.special.entr(shares).sum(dim=-1) / visible.sum(dim=1).double().log()
    found: dict[str, Sequence[float | int | None]] = {"rows": [int(rows.sum())] * len(p)}
    found |= {"entropy": _mean(entropy, rows), "max": _mean(p.amax(dim=-1), rows)}
    if units is not None:
        found["distance"] = _mean((shares * (i - j).abs()).sum(dim=-1), rows)
    for name, place in ({"first": j == 0} if units is None else _places(units, i, j)).items():
        cells = visible & place
        having = rows & cells.any(dim=1)
        found[name] = _mean((p * cells).sum(dim=-1), having)
        if name in _SOME_ROWS:
            found[f"{name}_rows"] = [int(having.sum())] * len(p)
    sums = p.sum(dim=-1)[:, visible.any(dim=1)]
    if ((sums - 1).abs() > ROW_SUM_TOLERANCE).any():
        found["row_sum"] = [float(one) for one in sums.mean(dim=1)]
    return [{name: values[head] for name, values in found.items()} for head in range(len(p))]


def role(measures: Mapping[str, float | None]) -> str | None:
    """What the head is called by its measures, one of ROLES; None too where too few rows have a choice.

    A fixed place that gets more than half of the weight is the role: in a short text such a head meets other occurrences by chance.
    Else `broad` above an entropy of 0.9: where a text repeats itself, an even head meets the same token everywhere. Else the best of
    `first`, `induction` and `same` above one half, of those that enough rows can show.
    """
    if (measures["rows"] or 0) < LEAST_ROWS:
        return None
    scores = {name: measures.get(name) or 0.0 for name in ROLES} | {"broad": float((measures["entropy"] or 0.0) > 0.9)}
    for name in _SOME_ROWS:
        if (measures.get(f"{name}_rows") or 0) < max(LEAST_ROWS, LEAST_PART * (measures["rows"] or 0)):
            scores[name] = 0.0
    for names in (("previous", "next", "self"), ("broad",), _SOME_ROWS):
        best = max(names, key=lambda name: scores[name])
        if scores[best] > 0.5:
            return best
    return None


def _places(units: Sequence[Hashable], i: Tensor, j: Tensor) -> dict[str, Tensor]:
    """Which cells (L, L) a name stands for."""
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


def scaled(p: Tensor) -> Tensor:
    """Rows that sum to 1; not numbers where a row is signed or empty."""
    total = p.sum(dim=-1, keepdim=True)
    fit = (p >= 0).all(dim=-1, keepdim=True) & (total > 0)
    return torch.where(fit, p / total, torch.nan)


def _mean(values: Tensor, rows: Tensor) -> list[float | None]:
    """The mean of (H, L) over some rows, by head; None where there is none, or one of them is no number."""
    means = values[:, rows].mean(dim=1)
    return [None if torch.isnan(mean) else float(mean) for mean in means]

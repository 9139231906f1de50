"""Cumulative sums with a fixed order of additions.

Source: Hillis and Steele 1986, "Data parallel algorithms", doi:10.1145/7902.7903.
"""

import torch
from torch import Tensor


def cumulative_sum(x: Tensor, dim: int) -> Tensor:
    """`x.cumsum(dim)`; by log2(n) shifted additions in torch's deterministic mode, which has no GPU kernel for it."""
    n = x.shape[dim]
    if not torch.are_deterministic_algorithms_enabled():
        return x.cumsum(dim)
    shift = 1
    while shift < n:
        x = torch.cat([x.narrow(dim, 0, shift), x.narrow(dim, shift, n - shift) + x.narrow(dim, 0, n - shift)], dim)
        shift *= 2
    return x

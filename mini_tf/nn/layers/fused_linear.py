"""Several linear layers of one input as one matrix product, which is faster than several."""

from collections.abc import Sequence

from torch import nn


class FusedLinear(nn.Linear):
    """The concatenated outputs of linear layers of `sizes`; Muon and LoRA treat the parts as separate matrices."""

    def __init__(self, d_in: int, sizes: Sequence[int], bias: bool) -> None:
        super().__init__(d_in, sum(sizes), bias=bias)
        self.sizes = tuple(sizes)

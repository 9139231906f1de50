"""Several linear maps of one input as one product, since one large product is faster than several."""

from collections.abc import Sequence

from torch import nn


class FusedLinear(nn.Linear):
    """x -> the answers of maps to `sizes` dimensions, one after another; what treats matrices apart looks at `sizes`."""

    def __init__(self, d_in: int, sizes: Sequence[int], bias: bool) -> None:
        super().__init__(d_in, sum(sizes), bias=bias)
        self.sizes = tuple(sizes)

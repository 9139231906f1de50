"""ALiBi: a bias of the attention scores that falls linearly with distance, with a slope for each head and no
parameters.

Slopes are a geometric sequence from 2^(-8/n) for n heads if n is a power of two; for other n, as in the released code,
every second slope of the next power of two is added. In an encoder the bias is symmetric. Positions are not limited.
Source: Press et al. 2021, arXiv:2108.12409, section 3.
"""

import math

import torch
from torch import Tensor

from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings


class Settings(PositionalEncodingSettings):
    APPLIES_TO = frozenset({"bias"})

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        return Alibi(n_heads)


class Alibi(PositionalEncoding):
    applies_to = Settings.APPLIES_TO

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(slopes(n_heads)), persistent=False)
        self.slopes: Tensor

    def bias(self, distance: Tensor, q: Tensor | None = None, k: Tensor | None = None) -> Tensor:
        shape = (1, -1) + (1,) * (distance.dim() - 1)
        return -self.slopes.view(shape) * distance.abs()[:, None]


def slopes(n_heads: int) -> list[float]:
    """The slope of each head."""
    power = 2 ** math.floor(math.log2(n_heads))
    values = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    if power < n_heads:
        values += slopes(2 * power)[0::2][: n_heads - power]
    return values

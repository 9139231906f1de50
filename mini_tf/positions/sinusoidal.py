"""Sinusoidal positional encoding, added to the token embeddings.

PE(p, 2i) = sin(p / base^(2i/d)), PE(p, 2i+1) = cos(p / base^(2i/d)). Source: Vaswani et al. 2017, arXiv:1706.03762,
section 3.5. Sines and cosines alternate, as in the paper, or all sines come first, as in Marian (tensor2tensor's code
has slightly different frequencies, too).
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings, sinusoids
from mini_tf.nn.token_positions import TokenPositions


class Settings(PositionalEncodingSettings):
    ALIASES = ("sine", "sin_cos")
    APPLIES_TO = frozenset({"embed"})

    base: float = Field(10000.0, gt=1)
    """Wavelengths are 2 pi to base * 2 pi."""

    order: Literal["alternating", "sines_first"] = "alternating"
    """Order of the dimensions: sine, cosine, sine, ..., or all sines, then all cosines."""

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        return Sinusoidal(d_model, self.base, self.order == "sines_first")


class Sinusoidal(PositionalEncoding):
    applies_to, additive = Settings.APPLIES_TO, True

    def __init__(self, d_model: int, base: float, sines_first: bool = False) -> None:
        super().__init__()
        self.d_model, self.base, self.sines_first = d_model, base, sines_first

    def embed(self, x: Tensor, token_positions: TokenPositions) -> Tensor:
        table = sinusoids(token_positions.all_positions(x.device), self.d_model, self.base)
        if self.sines_first:
            table = torch.cat([table[..., 0::2], table[..., 1::2]], dim=-1)
        return x + table.to(x.dtype)

"""Sinusoidal positional encoding, added to the token embeddings.

PE(p, 2i) = sin(p / base^(2i/d)), PE(p, 2i+1) = cos(p / base^(2i/d)). Source: Vaswani et al. 2017, arXiv:1706.03762,
section 3.5. Sines and cosines alternate, as in the paper (tensor2tensor's code has all sines first, with slightly
different frequencies).
"""

from pydantic import Field
from torch import Tensor

from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.positions._sinusoids import sinusoids


class Settings(PositionalEncodingSettings):
    APPLIES_TO = frozenset({"embed"})

    base: float = Field(10000.0, gt=1)
    """Wavelengths are 2 pi to base * 2 pi."""

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        return Sinusoidal(d_model, self.base)


class Sinusoidal(PositionalEncoding):
    applies_to = Settings.APPLIES_TO

    def __init__(self, d_model: int, base: float) -> None:
        super().__init__()
        self.d_model, self.base = d_model, base

    def embed(self, x: Tensor, token_positions: TokenPositions) -> Tensor:
        return x + sinusoids(token_positions.all_positions(x.device), self.d_model, self.base).to(x.dtype)

"""Fourier features of the position, scaled to [-1, 1], added to the token embeddings or concatenated with them.

[p, sin(pi f_k p), cos(pi f_k p)] with frequencies f_k spaced evenly from 1 to half of `length` (the Nyquist frequency);
a linear layer maps the features, or the concatenation, to d_model. Source: Jaegle et al. 2021, Perceiver IO,
arXiv:2107.14795, appendix.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings
from mini_tf.nn.token_positions import TokenPositions


class Settings(PositionalEncodingSettings):
    APPLIES_TO = frozenset({"embed"})
    PLOT_NOTE = (
        "The vectors are the outputs of the learned map of the Fourier features, as added to the token embeddings."
    )

    n_bands: int = Field(32, ge=1, le=4096)
    """Number of frequencies."""
    combine: Literal["add", "concat"] = "add"
    """Add to the token embeddings, or concatenate with them and map to d_model."""
    length: Annotated[int, Field(ge=1, le=2**20)] | Literal["auto"] = "auto"
    """Number of positions scaled to [-1, 1]; auto = train.context. Later positions are greater than 1."""

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        return Fourier(
            d_model, self.n_bands, self.combine == "concat", context if self.length == "auto" else self.length
        )


class Fourier(PositionalEncoding):
    applies_to = Settings.APPLIES_TO

    def __init__(self, d_model: int, n_bands: int, concat: bool, length: int) -> None:
        super().__init__()
        self.n_bands, self.concat, self.additive, self.length = n_bands, concat, not concat, length
        self.map = nn.Linear(2 * n_bands + 1 + (d_model if concat else 0), d_model, bias=False)

    def embed(self, x: Tensor, token_positions: TokenPositions) -> Tensor:
        features = self.features(token_positions.all_positions(x.device)).to(x.dtype)
        if self.concat:
            joined: Tensor = self.map(torch.cat([x, features.expand(x.shape[0], -1, -1)], dim=-1))
            return joined
        added: Tensor = x + self.map(features)
        return added

    def features(self, positions: Tensor) -> Tensor:
        """Positions (...,) -> features (..., 2 n_bands + 1)."""
        p = 2.0 * positions[..., None].double() / max(1, self.length - 1) - 1.0
        highest = max(1.0, self.length / 2)
        angle = torch.pi * torch.linspace(1.0, highest, self.n_bands, device=positions.device, dtype=torch.float64) * p
        return torch.cat([p, angle.sin(), angle.cos()], dim=-1)

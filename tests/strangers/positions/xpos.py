"""xPos: rotary positions whose scores fade with the distance: queries grow and keys shrink by powers of their position.

Source: Sun et al. 2022, "A Length-Extrapolatable Transformer", arXiv:2212.10554, section 3.
"""

from typing import ClassVar

import torch
from torch import Tensor

from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings
from mini_tf.nn.token_positions import TokenPositions


class Settings(PositionalEncodingSettings):
    APPLIES_TO: ClassVar[frozenset[str]] = frozenset({"rotary"})

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> "XPos":
        return XPos(d_k)


class XPos(PositionalEncoding):
    applies_to = Settings.APPLIES_TO
    orthogonal = False

    def __init__(self, d_k: int) -> None:
        super().__init__()
        self.d_k = d_k

    def rotate(self, x: Tensor, token_positions: TokenPositions, n_queries: int | None = None) -> Tensor:
        pair = torch.arange(0, self.d_k, 2, dtype=x.dtype, device=x.device) / self.d_k
        positions = token_positions.all_positions(x.device)[:, :, None, None].to(x.dtype)
        angle, fade = positions * 10000**-pair, ((pair + 0.4) / 1.4) ** (positions / 512)
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat(
            [first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], dim=-1
        )
        queries = torch.arange(x.shape[2], device=x.device)[:, None] < (x.shape[2] if n_queries is None else n_queries)
        return turned * torch.where(queries, fade, 1 / fade).repeat(1, 1, 1, 2)

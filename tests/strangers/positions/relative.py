"""Scores that depend on query and distance: (q + v) r(i - j) + u k, Transformer-XL's terms."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings


class Settings(PositionalEncodingSettings):
    APPLIES_TO: ClassVar[frozenset[str]] = frozenset({"bias"})

    reach: int = Field(16, ge=1)

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> "Relative":
        return Relative(n_heads, d_k, self.reach)


class Relative(PositionalEncoding):
    applies_to = Settings.APPLIES_TO
    distance_only = False

    def __init__(self, n_heads: int, d_k: int, reach: int) -> None:
        super().__init__()
        self.reach, self.scale = reach, d_k**-0.5
        self.u, self.v = (nn.Parameter(torch.randn(n_heads, 1, d_k)) for _ in range(2))
        self.table = nn.Embedding(2 * reach + 1, n_heads * d_k)

    def bias(self, distance: Tensor, q: Tensor | None = None, k: Tensor | None = None) -> Tensor:
        assert q is not None
        assert k is not None
        r = self.table.weight.view(-1, *q.shape[1::2]).transpose(0, 1)  # (H, 2 reach + 1, K)
        distance_only = (q + self.v) @ r.transpose(-1, -2)  # (B, H, L, 2 reach + 1)
        index = (distance.clamp(-self.reach, self.reach) + self.reach)[:, None].expand(len(q), q.shape[1], -1, -1)
        return (distance_only.gather(3, index) + self.u @ k.transpose(-1, -2)) * self.scale

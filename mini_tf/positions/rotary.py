"""Rotary positions: queries and keys are turned by angles that grow with their place, so scores see distances only.

Dimension j is paired with j + d_k/2 (the layout of Hugging Face's Llama). Source: Su et al. 2021, arXiv:2104.09864.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from mini_tf.nn.places import Places
from mini_tf.nn.position import Position, PositionSettings


class Settings(PositionSettings):
    ATTACHES: ClassVar[frozenset[str]] = frozenset({"rotary"})

    base: float = Field(10000.0, gt=1)
    """Pair i turns by base^(-2i/d_k) a token; short texts like a small base."""

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> Position:
        return Rotary(d_k, self.base)


class Rotary(Position):
    attaches = Settings.ATTACHES

    def __init__(self, d_k: int, base: float) -> None:
        super().__init__()
        self.d_k, self.base = d_k, base
        self._last: tuple[Places, Tensor, Tensor] | None = None

    def angles(self, device: torch.device) -> Tensor:
        """By how much each pair turns from one token to the next, (K/2,) in float64, the fastest first."""
        pair = torch.arange(0, self.d_k, 2, device=device, dtype=torch.float64)
        return self.base ** (-pair / self.d_k)

    def turn(self, x: Tensor, places: Places) -> Tensor:
        cos, sin = self._turns(places, x)
        return torch.addcmul(x * cos, x.roll(self.d_k // 2, dims=-1), sin)

    def _turns(self, places: Places, like: Tensor) -> tuple[Tensor, Tensor]:
        """cos and signed sin (B or 1, L, 1, K); made once for all layers, which are given the same places."""
        if self._last is not None and self._last[0] is places and self._last[1].dtype == like.dtype and self._last[1].device == like.device:
            return self._last[1:]
        angle = places.all_positions(like.device)[..., None].double() * self.angles(like.device)
        cos = torch.cat([angle.cos(), angle.cos()], dim=-1)[:, :, None].to(like.dtype)
        sin = torch.cat([-angle.sin(), angle.sin()], dim=-1)[:, :, None].to(like.dtype)
        self._last = (places, cos, sin)
        return cos, sin

"""Softmax attention with a buffer that is drawn anew at every step, as the projection of random features is."""

from typing import Any

import torch

from mini_tf.nn.attention import MultiHeadAttention, MultiHeadSettings
from mini_tf.nn.mixer import AttentionDims, LayerSpec


class Settings(MultiHeadSettings):
    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Redrawn":
        return Redrawn(self, dims, layer)


class Redrawn(MultiHeadAttention):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.register_buffer("drawn", torch.zeros(3))

    def refresh(self, seed: int, step: int) -> bool:
        self.drawn = torch.randn(3, generator=torch.Generator().manual_seed(step))
        return False

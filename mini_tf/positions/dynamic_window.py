"""word2vec's dynamic window as a bias of the attention scores: log((window - distance + 1) / window), no parameters.

word2vec draws a window of 1 to `window` tokens for each target; a token at some distance is then within it with the
probability (window - distance + 1) / window, which is its relative weight here. A token beyond the window has the
weight 0. Source: Mikolov et al. 2013, arXiv:1301.3781, section 3.1, and the released code.
"""

import torch
from pydantic import Field
from torch import Tensor

from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings

BEYOND = -3e4
"""Bias beyond the window: exp of it is 0, and it is finite in half precision."""


class Settings(PositionalEncodingSettings):
    APPLIES_TO = frozenset({"bias"})

    window: int = Field(5, ge=1, le=2**20)
    """Largest distance in tokens that has a weight above 0."""

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        return DynamicWindow(n_heads, self.window)


class DynamicWindow(PositionalEncoding):
    applies_to = Settings.APPLIES_TO

    def __init__(self, n_heads: int, window: int) -> None:
        super().__init__()
        self.n_heads, self.window = n_heads, window
        self.register_buffer("like", torch.empty(0), persistent=False)  # follows the dtype of the model
        self.like: Tensor

    def bias(self, distance: Tensor, q: Tensor | None = None, k: Tensor | None = None) -> Tensor:
        weight = (self.window + 1 - distance.abs()).clamp(min=0).to(self.like.dtype) / self.window
        return weight.log().clamp(min=BEYOND)[:, None].expand(-1, self.n_heads, *[-1] * (distance.dim() - 1))

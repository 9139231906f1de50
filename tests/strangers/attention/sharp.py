"""Reads in a way of its own: weights are squared and scaled to sum 1 again."""

from torch import Tensor

from mini_tf.nn.attention import MultiHeadAttention, MultiHeadSettings
from mini_tf.nn.layers.attention_kernels import attend
from mini_tf.nn.mixer import AttentionDims, ExplicitAttention, LayerSpec
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import Visibility


class Settings(MultiHeadSettings):
    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Sharp":
        return Sharp(self, dims, layer)


class Sharp(MultiHeadAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility) -> Tensor:
        return attend(q, k, v, visibility, 2 * self.scale, _Twice(self._bias_encoding))

    def explicit(self, x: Tensor, memory: Tensor | State, visibility: Visibility) -> ExplicitAttention:
        weights, values, *_ = super().explicit(x, memory, visibility)
        return ExplicitAttention((weights**2 / (weights**2).sum(-1, keepdim=True)).nan_to_num(0.0), values)


class _Twice(PositionalEncoding):
    """A bias, doubled."""

    def __init__(self, position: PositionalEncoding | None) -> None:
        super().__init__()
        self.applies_to = frozenset() if position is None else frozenset({"bias"})
        self._position = (position,)

    def bias(self, distance: Tensor, q: Tensor | None = None, k: Tensor | None = None) -> Tensor | None:
        bias = None if self._position[0] is None else self._position[0].bias(distance, q, k)
        return None if bias is None else 2 * bias

"""Scaled dot-product attention; time O(L^2), memory O(L).

Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.
"""

from mini_tf.nn.mixer import AttentionDims, LayerSpec
from mini_tf.nn.multi_head_attention import MultiHeadAttention, MultiHeadSettings


class Settings(MultiHeadSettings):
    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Softmax":
        return Softmax(self, dims, layer)


class Softmax(MultiHeadAttention):
    """Multi-head attention without changes."""

    STANDARD_SOFTMAX = True

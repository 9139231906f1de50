"""Scaled dot-product attention; time O(L^2), memory O(L).

Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.
"""

from mini_tf.nn.mixer import AttentionDims, LayerSpec, MixerCost
from mini_tf.nn.multi_head_attention import MemorySettings, MultiHeadAttention


class Settings(MemorySettings):
    def cost(self, dims: AttentionDims, length: int, causal: bool) -> MixerCost:
        """The fused kernel saves its output and the logarithm of each query's sum."""
        flops, saved = self.projection_cost(dims, length)
        attention = 2 * dims.n_heads * length**2 * (dims.d_k + dims.d_v)  # the full square, also if causal
        return MixerCost(flops + attention, saved + length * dims.n_heads * (dims.d_v + 1))

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Softmax":
        return Softmax(self, dims, layer)


class Softmax(MultiHeadAttention):
    """Multi-head attention without changes."""

    STANDARD_SOFTMAX = True

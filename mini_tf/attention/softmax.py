"""Scaled dot-product attention; time O(L^2), memory O(L).

With `n_persistent`, all-attention: learned keys and values beside those of the tokens, in one softmax.
Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2; all-attention: Sukhbaatar et al. 2019, arXiv:1907.01470,
section 4.2.
"""

from pydantic import Field

from mini_tf.attention._all_attention import AllAttention
from mini_tf.nn.attention import MemorySettings, MultiHeadAttention
from mini_tf.nn.mixer import AttentionDims, LayerSpec


class Settings(MemorySettings):
    ALIASES = ("scaled", "dot_product", "scaled_dot_product", "full", "flash", "sdpa", "mha", "multi_head", "multihead")
    n_persistent: int = Field(0, ge=0, le=2**20)
    """All-attention: learned key and value vectors per key-value head, which every token attends to beside tokens."""

    def build(self, dims: AttentionDims, layer: LayerSpec) -> MultiHeadAttention:
        return AllAttention(self, self.n_persistent, dims, layer) if self.n_persistent else Softmax(self, dims, layer)


class Softmax(MultiHeadAttention):
    """Multi-head attention without changes."""

    STANDARD_SOFTMAX = True

"""Scaled dot-product attention; time O(L^2), memory O(L).

With `n_persistent`, all-attention: learned keys and values beside those of the tokens, in one softmax. They have no
position: queries are compared with them as they are before the rotation of a positional encoding, and without its bias.
`qk_norm` normalizes these keys, too. A query that attends to no token, such as padding, attends to them alone.
Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2; all-attention: Sukhbaatar et al. 2019, arXiv:1907.01470,
section 4.2.
"""

import torch
from pydantic import Field
from torch import Tensor

from mini_tf.nn.layers.persistent_attention import KeysValues
from mini_tf.nn.mixer import AttentionDims, LayerSpec
from mini_tf.nn.multi_head_attention import MemorySettings, MultiHeadAttention
from mini_tf.nn.persistent_vectors import PersistentVectors
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import Visibility


class Settings(MemorySettings):
    n_persistent: int = Field(0, ge=0, le=2**20)
    """All-attention: learned key and value vectors per key-value head, which every token attends to beside tokens."""

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Softmax":
        return Softmax(self, dims, layer)


class Softmax(MultiHeadAttention):
    """Multi-head attention without changes, or with persistent vectors."""

    STANDARD_SOFTMAX = True

    def __init__(self, settings: Settings, dims: AttentionDims, layer: LayerSpec) -> None:
        super().__init__(settings, dims, layer)
        self.persistent = PersistentVectors(settings.n_persistent, dims) if settings.n_persistent else None

    def persistent_vectors(self) -> KeysValues | None:
        if self.persistent is None:
            return None
        keys, values = self.persistent()
        return self._normed(keys), values

    def project(self, x: Tensor, memory: Tensor | State, visibility: Visibility) -> tuple[Tensor, Tensor, Tensor]:
        """Beside rotated queries, in the second half of (B, H, L, 2 K), those for persistent keys."""
        encoding, n_heads = self._positional_encoding[0], self.dims.n_heads
        if self.persistent is None or encoding is None or "rotary" not in encoding.applies_to:
            return super().project(x, memory, visibility)
        q_and_k, v = self.project_heads(x, memory)
        q, k = self.rotated(q_and_k, visibility).split([n_heads, self.dims.n_kv_heads], dim=2)
        q = torch.cat([q, self._normed(q_and_k[:, :, :n_heads])], dim=-1)
        return q.transpose(1, 2), k.transpose(1, 2), v

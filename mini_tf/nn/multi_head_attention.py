"""Multi-head attention: the projections, the KV cache and the output projection that softmax-like mixers share.

d_k, d_v and the number of key-value heads are configurable. Subclasses override `attend`, and `restrict` for a
narrower mask.
Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2; grouped-query attention: Ainslie et al. 2023,
arXiv:2305.13245; QK normalization: Henry et al. 2020, arXiv:2010.04245.
"""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.layers.attend import attend, attention_weights, repeat_kv
from mini_tf.nn.layers.fused_linear import FusedLinear
from mini_tf.nn.layers.norm import rms_norm
from mini_tf.nn.mixer import AttentionDims, ExplicitAttention, ForwardOutput, LayerSpec, Mixer, MixerSettings, SoftmaxAttention
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import POSITIONS_KEY, TokenPositions, Visibility


class MultiHeadSettings(MixerSettings):
    POSITIONS = frozenset({"rotary", "bias"})

    scale: Literal["rsqrt_dk", "none"] | float = "rsqrt_dk"
    """Factor of the attention scores before softmax: 1/sqrt(d_k), 1, or this number."""
    qk_norm: bool = False
    """Queries and keys are normalized to RMS 1 before the dot product."""
    dropout_rate: float = Field(0.0, ge=0, lt=1)
    """Dropout probability of attention weights; slow on a CPU, where it disables the fused kernel."""


class MultiHeadAttention(Mixer):
    """Multi-head attention; a subclass may restrict the mask or compute attention differently."""

    STANDARD_SOFTMAX: ClassVar[bool] = False
    """`attend` is the method below, so the fast decoder may be used. Not inherited: each class declares it."""

    def __init__(self, settings: MultiHeadSettings, dims: AttentionDims, layer: LayerSpec) -> None:
        super().__init__()
        self.dims, self.dropout_rate, self.qk_norm = dims, settings.dropout_rate, settings.qk_norm
        scales = {"rsqrt_dk": dims.d_k**-0.5, "none": 1.0}
        self.scale = scales[settings.scale] if isinstance(settings.scale, str) else settings.scale
        # In a tuple, so not registered as a submodule: the embedding owns the module.
        self._positional_encoding = (layer.positional_encoding,)
        self.cross = layer.attention == "cross"
        q, k, v = dims.n_heads * dims.d_k, dims.n_kv_heads * dims.d_k, dims.n_kv_heads * dims.d_v
        if self.cross:
            self.q = nn.Linear(dims.d_model, q, bias=layer.bias)
            self.kv = FusedLinear(dims.d_memory, (k, v), layer.bias)
        else:
            self.qkv = FusedLinear(dims.d_model, (q, k, v), layer.bias)
        self.sizes = (q, k, v)
        self.out = nn.Linear(dims.n_heads * dims.d_v, dims.d_model, bias=layer.bias)

    def start(self, batch: int) -> State:
        if self.cross:
            return {}  # keys and values come from `recall`
        parameter = self.out.weight
        empty = [parameter.new_empty(batch, self.dims.n_kv_heads, 0, d) for d in (self.dims.d_k, self.dims.d_v)]
        return {"k": empty[0], "v": empty[1], POSITIONS_KEY: {"start": 0}}

    def recall(self, memory: Float[Tensor, "B M d_memory"], token_positions: TokenPositions) -> State:
        """Keys `k` (B, G, M, K) and values `v` (B, G, M, V) of a source."""
        assert self.cross, "recall is for cross-attention"
        k, v = self.kv(memory).split(self.sizes[1:], dim=-1)
        return {"k": self._normed(self._heads(k)).transpose(1, 2), "v": self._heads(v, self.dims.d_v).transpose(1, 2)}

    def forward(
        self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility, state: State | None = None
    ) -> ForwardOutput:
        q, k, v = self._project(x, memory, visibility)
        if state:
            k, v, visibility, state = self._join_state(k, v, visibility, state)
        return self.join(self.attend(q, k, v, self.restrict(visibility)), x, visibility, state)

    def explicit(self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility) -> ExplicitAttention:
        q, k, v = self._project(x, memory, visibility)
        k, v = repeat_kv(k, q.shape[1]), repeat_kv(v, q.shape[1])
        return ExplicitAttention(attention_weights(q, k, self.restrict(visibility), self.scale, self._bias_encoding), v)

    def join(
        self, attended: Float[Tensor, "B H L V"], x: Float[Tensor, "B L D"], visibility: Visibility, state: State | None = None
    ) -> ForwardOutput:
        return ForwardOutput(self.out(attended.transpose(1, 2).flatten(2)), None, state)  # (B,H,L,V) -> (B,L,H*V) -> (B,L,D)

    def fast_decoding(self) -> SoftmaxAttention | None:
        if not vars(type(self)).get("STANDARD_SOFTMAX") or self.cross:
            return None
        mask = self.restrict(Visibility(True, TokenPositions(1), TokenPositions(1)))
        weights = SoftmaxAttention(self.dims, self.qkv, self.sizes, self.out, self.scale, self.qk_norm, mask.window)
        return weights if mask.attends_self else None

    def residual_outputs(self) -> list[nn.Linear]:
        return [self.out]

    def attend(
        self, q: Float[Tensor, "B H L K"], k: Float[Tensor, "B G M K"], v: Float[Tensor, "B G M V"], visibility: Visibility
    ) -> Float[Tensor, "B H L V"]:
        """Weighted sums of the values."""
        dropout_rate = self.dropout_rate if self.training else 0.0
        return attend(q, k, v, visibility, self.scale, self._bias_encoding, dropout_rate)

    @property
    def _bias_encoding(self) -> PositionalEncoding | None:
        encoding = self._positional_encoding[0]
        return encoding if encoding is not None and "bias" in encoding.applies_to else None

    def _project(self, x: Tensor, memory: Tensor | State, visibility: Visibility) -> tuple[Tensor, Tensor, Tensor]:
        if self.cross:
            recalled = memory if isinstance(memory, dict) else self.recall(memory, visibility.memory)
            return self._normed(self._heads(self.q(x))).transpose(1, 2), recalled["k"], recalled["v"]
        if isinstance(memory, dict) or memory.shape != x.shape:
            raise ValueError("self-attention needs x itself as memory; build the mixer with attention 'cross' for another memory")
        q_and_k, v = self.qkv(x).split([self.sizes[0] + self.sizes[1], self.sizes[2]], dim=-1)
        # Queries and keys have the same width and are rotated and normalized together. Rotations preserve norms, so the
        # norm may come last: then only tensors that the attention scores need anyway are saved for the backward pass.
        rotated, encoding = self._heads(q_and_k), self._positional_encoding[0]
        orthogonal = encoding is None or encoding.orthogonal
        rotated = rotated if orthogonal else self._normed(rotated)
        if encoding is not None and "rotary" in encoding.applies_to:
            rotated = encoding.rotate(rotated, visibility.queries, self.dims.n_heads)
        rotated = self._normed(rotated) if orthogonal else rotated
        q, k = rotated.transpose(1, 2).split([self.dims.n_heads, self.dims.n_kv_heads], dim=1)
        # A view of v would keep the whole output of qkv in memory for the backward pass.
        return q, k, self._heads(v, self.dims.d_v).contiguous().transpose(1, 2)

    def _heads(self, x: Tensor, d: int | None = None) -> Tensor:
        return x.reshape(*x.shape[:-1], -1, d or self.dims.d_k)

    def _normed(self, x: Tensor) -> Tensor:
        # The epsilon of at least fp32, so that a model trained in half precision gives the same outputs in fp32.
        return rms_norm(x, torch.finfo(torch.promote_types(x.dtype, torch.float32)).eps) if self.qk_norm else x

    def _join_state(self, k: Tensor, v: Tensor, visibility: Visibility, state: State) -> tuple[Tensor, Tensor, Visibility, State]:
        """Keys, values and mask with those of the KV cache in front, and the new state."""
        visibility = visibility.with_cache(TokenPositions.of_state(state[POSITIONS_KEY], state["k"].shape[2]), k.shape[0], k.device)
        k, v = torch.cat([state["k"], k], dim=2), torch.cat([state["v"], v], dim=2)
        return k, v, visibility, state | {"k": k, "v": v, POSITIONS_KEY: visibility.memory.to_state()}

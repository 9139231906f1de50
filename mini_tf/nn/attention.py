"""Multi-head softmax attention: queries, keys, values, mask, softmax and output, and its parts.

`MultiHeadAttention` is attention on one screen. `MultiHeadProjections` has the heads: grouped queries, QK norm and
rotary positions. The KV cache is `token_cache.py`, the mask `Visibility`, the kernel `layers/attention_kernels.py`.
Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2; grouped-query attention: Ainslie et al. 2023,
arXiv:2305.13245; QK normalization: Henry et al. 2020, arXiv:2010.04245; memory: Dai et al. 2019, arXiv:1901.02860,
section 3.2.
"""

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.layers.attention_kernels import attend, repeat_kv, rotated_heads, rotates_at_once, scores_mask
from mini_tf.nn.layers.kernels import FusedLinear, ResidualLinear, split_outputs
from mini_tf.nn.layers.norm import rms_norm
from mini_tf.nn.mixer import (
    Ability,
    AttentionDims,
    ExplicitAttention,
    FastProjections,
    ForwardOutput,
    LayerSpec,
    Mixer,
    MixerSettings,
    SoftmaxAttention,
)
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.state import State
from mini_tf.nn.token_cache import append_tokens, empty_cache
from mini_tf.nn.token_positions import TokenPositions, Visibility

Scale = Literal["rsqrt_dk", "none"] | float
"""Factor of the attention scores: 1/sqrt(d_k), 1, or a number."""


class ProjectionSettings(MixerSettings):
    SUPPORTS = MixerSettings.SUPPORTS | {"rotary"}

    qk_norm: bool | Literal["weight"] = False
    """Queries and keys are normalized to RMS 1 before the dot product; weight: then scaled by learned weights."""


def qk_norm_eps(dtype: torch.dtype) -> float:
    """Epsilon of `qk_norm`: that of at least fp32, so that a model trained in half precision is the same in fp32."""
    return torch.finfo(torch.promote_types(dtype, torch.float32)).eps


def scale_value(scale: Scale, d_k: int) -> float:
    """The number that a `scale` setting stands for."""
    scales = {"rsqrt_dk": d_k**-0.5, "none": 1.0}
    return scales[scale] if isinstance(scale, str) else scale


class MultiHeadSettings(ProjectionSettings):
    SUPPORTS = ProjectionSettings.SUPPORTS | {"bias"}
    TRAINING_KEYS = frozenset({"dropout_rate"})

    scale: Scale = "rsqrt_dk"
    """Factor of the attention scores before softmax: 1/sqrt(d_k), 1, or this number."""
    dropout_rate: float = Field(0.0, ge=0, lt=1)
    """Dropout probability of attention weights; slow on a CPU, where it disables the fused kernel."""


class MemorySettings(MultiHeadSettings):
    """Settings of a mixer with the memory of Transformer-XL."""

    TRAINING_KEYS = frozenset({"memory_cache"})
    STREAM_KEYS = frozenset({"memory_length"})

    memory_length: int = Field(0, ge=0, le=2**20)
    """Memory of Transformer-XL: with `train.stream`, tokens before a row that all tokens of the row attend to."""
    memory_cache: Literal["inputs", "keys"] = "keys"
    """What training keeps of them, without gradient: inputs of the layer, projected anew, or keys and values."""

    @property
    def supports(self) -> frozenset[Ability]:
        return super().supports | {"streaming"} if self.memory_length else super().supports

    @property
    def memory_bound(self) -> int | None:
        return self.memory_length or None


class MultiHeadProjections(Mixer):
    """Projections to queries, keys and values, and the output projection."""

    def __init__(self, settings: ProjectionSettings, dims: AttentionDims, layer: LayerSpec) -> None:
        super().__init__()
        self.dims, self.qk_norm = dims, bool(settings.qk_norm)
        # In a tuple, so not registered as a submodule: the embedding owns the module.
        self._positional_encoding = (layer.positional_encoding,)
        self.is_cross_attn = layer.attention == "cross"
        q, k, v = dims.n_heads * dims.d_k, dims.n_kv_heads * dims.d_k, dims.n_kv_heads * dims.d_v
        if self.is_cross_attn:
            self.q = nn.Linear(dims.d_model, q, bias=layer.bias)
            self.kv = FusedLinear(dims.d_memory, (k, v), layer.bias)
        else:
            self.qkv = FusedLinear(dims.d_model, (q, k, v), layer.bias)
        self.sizes = (q, k, v)
        self.q_norm, self.k_norm = (
            nn.Parameter(torch.ones(dims.d_k)) if settings.qk_norm == "weight" else None for _ in range(2)
        )
        self.out = ResidualLinear(dims.n_heads * dims.d_v, dims.d_model, bias=layer.bias)

    def join(
        self,
        attended: Float[Tensor, "B H L V"],
        x: Float[Tensor, "B L D"],
        visibility: Visibility,
        state: State | None = None,
    ) -> ForwardOutput:
        y = self.out(attended.transpose(1, 2).flatten(2))  # (B,H,L,V) -> (B,L,H*V) -> (B,L,D)
        return ForwardOutput(y, None, state)

    def fast_projections(self) -> FastProjections:
        """Self-attention: the projections of the fast decoder."""
        weight = self._qk_weight
        if weight is None and self.qk_norm:
            weight = self.qkv.weight.new_ones(self.dims.d_k)
        return FastProjections(self.dims, self.qkv, self.sizes, self.out, weight)

    def recall(self, memory: Float[Tensor, "B M d_memory"], token_positions: TokenPositions) -> State:
        """Keys `k` (B, G, M, K) and values `v` (B, G, M, V) of a source."""
        k, v = self.project_memory(memory)
        return {"k": k, "v": v}

    def project_query(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B H L K"]:
        """Cross-attention: the queries."""
        return self.normed(self._heads(self.q(x)), self.q_norm).transpose(1, 2)

    def project_memory(
        self, memory: Float[Tensor, "B M d_memory"]
    ) -> tuple[Float[Tensor, "B G M K"], Float[Tensor, "B G M V"]]:
        """Cross-attention: keys and values of a source."""
        assert self.is_cross_attn, "recall is for cross-attention"
        k, v = split_outputs(self.kv, memory, self.sizes[1:])
        return self.normed(self._heads(k), self.k_norm).transpose(1, 2), self._heads(v, self.dims.d_v).transpose(1, 2)

    def project(
        self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility
    ) -> tuple[Float[Tensor, "B H L K"], Float[Tensor, "B G M K"], Float[Tensor, "B G M V"]]:
        """Queries, keys and values, which self-attention rotates by their positions.

        Raises ValueError if the memory of self-attention is not x.
        """
        if self.is_cross_attn:
            recalled = memory if isinstance(memory, dict) else self.recall(memory, visibility.memory)
            return self.project_query(x), recalled["k"], recalled["v"]
        n_heads, n_kv_heads, d_k = self.dims.n_heads, self.dims.n_kv_heads, self.dims.d_k
        if not self.qk_norm and not self._rotary:
            widths = zip(self._split(x, memory, self.sizes), (d_k, d_k, self.dims.d_v), strict=True)
            q, k, v = (self._heads(part, width).transpose(1, 2) for part, width in widths)
            return q, k, v
        if rotates_at_once(x) and self.q_norm is None:
            encoding = self._positional_encoding[0] if self._rotary else None
            rotations = None if encoding is None else encoding.rotations(visibility.queries, d_k, x)
            if encoding is None or rotations is not None:
                self._require_same(x, memory)
                eps = qk_norm_eps(x.dtype) if self.qk_norm else None
                return rotated_heads(self.qkv(x), (n_heads, n_kv_heads, d_k), rotations, eps)
        q_and_k, v = self.project_heads(x, memory)
        q, k = self.rotated(q_and_k, visibility).transpose(1, 2).split([n_heads, n_kv_heads], dim=1)
        return q, k, v

    def project_heads(
        self, x: Float[Tensor, "B L D"], memory: Tensor | State
    ) -> tuple[Float[Tensor, "B L heads K"], Float[Tensor, "B G L V"]]:
        """Self-attention: queries and keys, neither rotated nor normalized, and values."""
        q_and_k, v = self._split(x, memory, (self.sizes[0] + self.sizes[1], self.sizes[2]))
        # A view of v would keep the whole output of qkv in memory for the backward pass.
        return self._heads(q_and_k), self._heads(v, self.dims.d_v).contiguous().transpose(1, 2)

    def rotated(self, q_and_k: Float[Tensor, "B L heads K"], visibility: Visibility) -> Float[Tensor, "B L heads K"]:
        """Queries and keys at the positions of the queries, normalized with `qk_norm`."""
        # Queries and keys have the same width and are rotated and normalized together. Rotations preserve norms, so the
        # norm may come last: then only tensors that the attention scores need anyway are saved for the backward pass.
        encoding, weight = self._positional_encoding[0], self._qk_weight
        last = weight is None and (encoding is None or encoding.orthogonal)
        q_and_k = q_and_k if last else self.normed(q_and_k, weight)
        if encoding is not None and self._rotary:
            q_and_k = encoding.rotate(q_and_k, visibility.queries, self.dims.n_heads)
        return self.normed(q_and_k) if last else q_and_k

    def _split(self, x: Tensor, memory: Tensor | State, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
        self._require_same(x, memory)
        return split_outputs(self.qkv, x, sizes)

    def _require_same(self, x: Tensor, memory: Tensor | State) -> None:
        if isinstance(memory, dict) or memory.shape != x.shape:
            raise ValueError(
                "self-attention needs x itself as memory; build the mixer with attention 'cross' for another memory"
            )

    @property
    def _rotary(self) -> bool:
        return (encoding := self._positional_encoding[0]) is not None and "rotary" in encoding.applies_to

    @property
    def _bias_encoding(self) -> PositionalEncoding | None:
        encoding = self._positional_encoding[0]
        return encoding if encoding is not None and "bias" in encoding.applies_to else None

    def _heads(self, x: Tensor, d: int | None = None) -> Tensor:
        return x.reshape(*x.shape[:-1], -1, d or self.dims.d_k)

    @property
    def _qk_weight(self) -> Tensor | None:
        """The learned weights of normalized queries and keys, (H + G, K)."""
        if self.q_norm is None or self.k_norm is None:
            return None
        weights = (self.q_norm, self.dims.n_heads), (self.k_norm, self.dims.n_kv_heads)
        return torch.cat([weight.expand(n, -1) for weight, n in weights])

    def normed(self, x: Float[Tensor, "*at K"], weight: Tensor | None = None) -> Float[Tensor, "*at K"]:
        """Queries or keys with `qk_norm`, and their learned weight, if there is one."""
        return rms_norm(x, qk_norm_eps(x.dtype), weight) if self.qk_norm else x


class MultiHeadAttention(MultiHeadProjections):
    """softmax(q k^T * scale + bias) v in every head, with a KV cache. A subclass may restrict the mask."""

    STANDARD_SOFTMAX: ClassVar[bool] = False
    """`attend` is the method below, so the fast decoder may be used. Not inherited: each class declares it."""

    def __init__(self, settings: MultiHeadSettings, dims: AttentionDims, layer: LayerSpec) -> None:
        super().__init__(settings, dims, layer)
        self.dropout_rate, self.scale = settings.dropout_rate, scale_value(settings.scale, dims.d_k)
        memory = settings if isinstance(settings, MemorySettings) else MemorySettings()
        self.memory_length, self.memory_cache = memory.memory_length or None, memory.memory_cache

    def forward(
        self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility, state: State | None = None
    ) -> ForwardOutput:
        if state and "x" in state:
            q, k, v, visibility, state = self.project_cached_inputs(x, visibility, state)
        else:
            q, k, v = self.project(x, memory, visibility)  # (B, H, L, K), (B, G, M, K), (B, G, M, V)
            if state:
                state, visibility = append_tokens(state, visibility, k=k, v=v)
                k, v = state["k"], state["v"]  # of cached tokens, too
        attended = self.attend(q, k, v, self.restrict(visibility))  # (B, H, L, V)
        return self.join(attended, x, visibility, state)  # the output projection: (B, L, H V) -> (B, L, D)

    def explicit(self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility) -> ExplicitAttention:
        q, k, v = self.project(x, memory, visibility)
        k, v = repeat_kv(k, q.shape[1]), repeat_kv(v, q.shape[1])  # (B, H, M, K), (B, H, M, V)
        visibility = self.restrict(visibility)
        weights = attention_weights(q, k, visibility, self.scale, self._bias_encoding)  # (B, H, L, M)
        return ExplicitAttention(weights, v, visibility=visibility)

    def restrict(self, visibility: Visibility) -> Visibility:
        """The attention mask of this mixer, a subset of the given one."""
        return visibility

    def attend(
        self,
        q: Float[Tensor, "B H L _"],
        k: Float[Tensor, "B G M K"],
        v: Float[Tensor, "B G M V"],
        visibility: Visibility,
    ) -> Float[Tensor, "B H L V"]:
        """`attention_weights` @ v by the fused kernel; weights are dropped in training."""
        dropout_rate = self.dropout_rate if self.training else 0.0
        return attend(q, k, v, visibility, self.scale, self._bias_encoding, dropout_rate)

    def start(self, batch: int) -> State:
        if self.is_cross_attn:
            return {}  # keys and values come from `recall`
        parameter = self.out.weight
        if self.training and self.memory_cache == "inputs":
            return empty_cache(x=parameter.new_empty(batch, 0, self.dims.d_model))
        k, v = (parameter.new_empty(batch, self.dims.n_kv_heads, 0, d) for d in (self.dims.d_k, self.dims.d_v))
        return empty_cache(k=k, v=v)

    def project_cached_inputs(
        self, x: Float[Tensor, "B L D"], visibility: Visibility, state: State
    ) -> tuple[Tensor, Tensor, Tensor, Visibility, State]:
        """Queries of x, and keys and values of cached inputs (`memory_cache`) and x, so W_K and W_V learn from all."""
        state, visibility = append_tokens(state, visibility, x=x)
        q, k, v = self.project(state["x"], state["x"], replace(visibility, queries=visibility.memory))
        return q[:, :, -x.shape[1] :], k, v, visibility, state

    def fast_decoding(self) -> SoftmaxAttention | None:
        if not vars(type(self)).get("STANDARD_SOFTMAX") or self.is_cross_attn:
            return None
        mask = self.restrict(Visibility(True, TokenPositions(1), TokenPositions(1)))
        return SoftmaxAttention(self.fast_projections(), self.scale, mask.window, None) if mask.attends_self else None


def attention_weights(
    q: Float[Tensor, "B H L _"],
    k: Float[Tensor, "B H M K"],
    visibility: Visibility,
    scale: float,
    encoding: PositionalEncoding | None = None,
) -> Float[Tensor, "B H L M"]:
    """The weights of `attend`; 0 for a query that attends to nothing."""
    scores = attention_scores(q, k, visibility, scale, encoding)
    # The softmax of a row that attends to nothing would be NaN, and so its gradient.
    blind = (scores == -torch.inf).all(dim=-1, keepdim=True)
    return scores.masked_fill(blind, 0.0).softmax(dim=-1).masked_fill(blind, 0.0)


def attention_scores(
    q: Float[Tensor, "B H L _"],
    k: Float[Tensor, "B H M K"],
    visibility: Visibility,
    scale: float,
    encoding: PositionalEncoding | None = None,
) -> Float[Tensor, "B H L M"]:
    """q k^T * scale + bias, and -inf where the mask hides a key."""
    mask = scores_mask(visibility, torch.arange(q.shape[2], device=q.device), encoding, q, k)
    scores = q[..., : k.shape[-1]] @ k.transpose(-1, -2) * scale  # (B,H,L,K) @ (B,H,K,M) -> (B,H,L,M)
    return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask

"""Multi-head softmax attention with a KV cache, which softmax-like mixers share.

Subclasses override `attend`, `restrict` for a narrower mask, and `persistent_vectors` for keys of no token.
Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2; memory: Dai et al. 2019, arXiv:1901.02860, section 3.2.
"""

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from mini_tf.nn.layers.attend import attend, attention_weights
from mini_tf.nn.layers.fused_attention import repeat_kv
from mini_tf.nn.layers.persistent_attention import KeysValues, keys_of_heads
from mini_tf.nn.mixer import Ability, AttentionDims, ExplicitAttention, ForwardOutput, LayerSpec, SoftmaxAttention
from mini_tf.nn.multi_head_projections import MultiHeadProjections, ProjectionSettings, Scale, scale_value
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.state import State
from mini_tf.nn.token_cache import append_tokens, empty_cache
from mini_tf.nn.token_positions import TokenPositions, Visibility


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


class MultiHeadAttention(MultiHeadProjections):
    """Multi-head attention; a subclass may restrict the mask or compute attention differently."""

    STANDARD_SOFTMAX: ClassVar[bool] = False
    """`attend` is the method below, so the fast decoder may be used. Not inherited: each class declares it."""

    def __init__(self, settings: MultiHeadSettings, dims: AttentionDims, layer: LayerSpec) -> None:
        super().__init__(settings, dims, layer)
        self.dropout_rate, self.scale = settings.dropout_rate, scale_value(settings.scale, dims.d_k)
        memory = settings if isinstance(settings, MemorySettings) else MemorySettings()
        self.memory_length, self.memory_cache = memory.memory_length or None, memory.memory_cache

    def start(self, batch: int) -> State:
        if self.cross:
            return {}  # keys and values come from `recall`
        parameter = self.out.weight
        if self.training and self.memory_cache == "inputs":
            return empty_cache(x=parameter.new_empty(batch, 0, self.dims.d_model))
        k, v = (parameter.new_empty(batch, self.dims.n_kv_heads, 0, d) for d in (self.dims.d_k, self.dims.d_v))
        return empty_cache(k=k, v=v)

    def recall(self, memory: Float[Tensor, "B M d_memory"], token_positions: TokenPositions) -> State:
        """Keys `k` (B, G, M, K) and values `v` (B, G, M, V) of a source."""
        k, v = self.project_memory(memory)
        return {"k": k, "v": v}

    def forward(
        self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility, state: State | None = None
    ) -> ForwardOutput:
        if state and "x" in state:
            q, k, v, visibility, state = self._project_with_memory(x, visibility, state)
        else:
            q, k, v = self._project(x, memory, visibility)
            if state:
                state, visibility = append_tokens(state, visibility, k=k, v=v)
                k, v = state["k"], state["v"]
        return self.join(self.attend(q, k, v, self.restrict(visibility)), x, visibility, state)

    def explicit(self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility) -> ExplicitAttention:
        q, k, v = self._project(x, memory, visibility)
        k, v = repeat_kv(k, q.shape[1]), repeat_kv(v, q.shape[1])
        persistent, lead = self.persistent_vectors(), 0
        visibility = self.restrict(visibility)
        weights = attention_weights(q, k, visibility, self.scale, self._bias_encoding, persistent)
        if persistent is not None:
            _, values = keys_of_heads(persistent, q)
            v, lead = torch.cat([values.expand(len(v), -1, -1, -1), v], dim=2), values.shape[2]
        return ExplicitAttention(weights, v, lead, visibility)

    def fast_decoding(self) -> SoftmaxAttention | None:
        if not vars(type(self)).get("STANDARD_SOFTMAX") or self.cross:
            return None
        mask = self.restrict(Visibility(True, TokenPositions(1), TokenPositions(1)))
        weights = SoftmaxAttention(self.fast_projections(), self.scale, mask.window, self.persistent_vectors())
        return weights if mask.attends_self else None

    def restrict(self, visibility: Visibility) -> Visibility:
        """The attention mask of this mixer, a subset of the given one."""
        return visibility

    def attend(
        self, q: Float[Tensor, "B H L _"], k: Float[Tensor, "B G M K"], v: Float[Tensor, "B G M V"], visibility: Visibility
    ) -> Float[Tensor, "B H L V"]:
        """Weighted sums of the values; q (B, H, L, K), or (B, H, L, 2 K) with queries for persistent keys."""
        dropout_rate = self.dropout_rate if self.training else 0.0
        return attend(q, k, v, visibility, self.scale, self._bias_encoding, dropout_rate, self.persistent_vectors())

    def persistent_vectors(self) -> KeysValues | None:
        """Keys (G, N, K) and values (G, N, V) that every query attends to beside the tokens; None: there are none."""
        return None

    @property
    def _bias_encoding(self) -> PositionalEncoding | None:
        encoding = self._positional_encoding[0]
        return encoding if encoding is not None and "bias" in encoding.applies_to else None

    def _project(self, x: Tensor, memory: Tensor | State, visibility: Visibility) -> tuple[Tensor, Tensor, Tensor]:
        if not self.cross:
            return self.project(x, memory, visibility)
        recalled = memory if isinstance(memory, dict) else self.recall(memory, visibility.memory)
        return self.project_query(x), recalled["k"], recalled["v"]

    def _project_with_memory(self, x: Tensor, visibility: Visibility, state: State) -> tuple[Tensor, Tensor, Tensor, Visibility, State]:
        """Queries of x, and keys and values of the cached inputs and x: W_K and W_V get gradients from all of them."""
        state, visibility = append_tokens(state, visibility, x=x)
        q, k, v = self.project(state["x"], state["x"], replace(visibility, queries=visibility.memory))
        return q[:, :, -x.shape[1] :], k, v, visibility, state

"""SRU++: a simple recurrent unit whose candidates and gates come from an attention head.

    Q = W_q x,  K = W_k Q,  V = W_v Q,  A = softmax(Q K^T / sqrt(d_proj)) V,  U = W_o LayerNorm(Q + alpha A)

alpha begins at 0, so the layer begins as an SRU with a low-rank projection; W_k and W_v learn as soon as alpha does.
There are no positions: the recurrence knows the order. `attention: false` leaves A out, e.g. in all layers but each
fourth. Source: Lei 2021, arXiv:2102.12459, section 3.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.attention import attention_weights
from mini_tf.nn.layers.attention_kernels import attend
from mini_tf.nn.layers.kernels import FusedLinear
from mini_tf.nn.mixer import Ability, AttentionDims, ExplicitAttention, ForwardOutput, LayerSpec, Mixer, RecurrentUnit
from mini_tf.nn.state import State
from mini_tf.nn.token_cache import append_tokens, empty_cache
from mini_tf.nn.token_positions import Visibility
from mini_tf.papers.sru.recurrence import Recurrence, RecurrenceSettings, no_heads


class Settings(RecurrenceSettings):
    STREAM_KEYS = frozenset({"memory_length"})

    d_proj: int | None = Field(None, ge=1, le=65536)
    """Width of queries, keys and values; default d_model / 4."""
    attention: bool = True
    """Candidates and gates come from attention, too."""
    memory_length: int = Field(0, ge=0, le=2**20)
    """With `train.stream`, tokens before a row that its tokens attend to; the recurrent state is always carried."""

    @property
    def supports(self) -> frozenset[Ability]:
        return self.SUPPORTS if self.attention and not self.memory_length else self.SUPPORTS | {"streaming"}

    @property
    def memory_bound(self) -> int | None:
        return self.memory_length if self.attention else None

    def width(self, dims: AttentionDims) -> int:
        return self.d_proj or max(1, dims.d_model // 4)

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "SRUpp":
        if layer.attention == "cross":
            raise ValueError("srupp has no cross-attention: a recurrence reads one sequence")
        return SRUpp(self, dims)


class SRUpp(Mixer):
    """The state holds that of the recurrence and, of earlier tokens, keys and values, or in training the queries `x`
    (B, M, d_proj), of which keys and values are linear maps: so these learn from a memory.
    """

    def __init__(self, settings: Settings, dims: AttentionDims) -> None:
        super().__init__()
        self.width, self.memory_length, self.has_heads = settings.width(dims), settings.memory_bound, settings.attention
        self.query = nn.Linear(dims.d_model, self.width, bias=False)
        self.key_value = FusedLinear(self.width, (self.width,) * 2, bias=False) if settings.attention else None
        self.alpha = nn.Parameter(torch.zeros(())) if settings.attention else None
        self.norm = nn.LayerNorm(self.width)
        self.project = FusedLinear(self.width, (dims.d_model,) * 3, bias=False)
        self.recurrence = Recurrence(dims.d_model, settings)

    def start(self, batch: int) -> State:
        state = self.recurrence.start(batch)
        if self.key_value is None:
            return state
        weight = self.query.weight
        if self.training:
            return state | empty_cache(x=weight.new_empty(batch, 0, self.width))
        k, v = (weight.new_empty(batch, 1, 0, self.width) for _ in range(2))
        return state | empty_cache(k=k, v=v)

    def forward(
        self, x: Float[Tensor, "B L D"], memory: object, visibility: Visibility, state: State | None = None
    ) -> ForwardOutput:
        q = self.query(x)
        attended, state = self._attended(q, visibility, state)
        return self._output(q, attended, x, visibility, state)

    def explicit(self, x: Float[Tensor, "B L D"], memory: object, visibility: Visibility) -> ExplicitAttention:
        """One head, or none without attention."""
        if self.key_value is None:
            return no_heads(x)
        q, k, v, mask, _ = self._attention(self.query(x), visibility, None)
        return ExplicitAttention(attention_weights(q, k, mask, self.width**-0.5), v)

    def join(
        self,
        attended: Float[Tensor, "B H L V"],
        x: Float[Tensor, "B L D"],
        visibility: Visibility,
        state: State | None = None,
    ) -> ForwardOutput:
        return self._output(self.query(x), attended[:, 0] if attended.shape[1] else None, x, visibility, state)

    def metrics(self, state: State | None) -> Mapping[str, tuple[Tensor, Tensor | int]]:
        """alpha: the share of attention; 0 at the beginning of training."""
        return {} if self.alpha is None else {"alpha": (self.alpha.detach(), 1)}

    def fast_decoding(self) -> RecurrentUnit | None:
        if self.key_value is not None:
            return None
        return RecurrentUnit(lambda x, state: self.recurrence.step(self.project(self.norm(self.query(x))), x, state))

    def observe(self, x: Float[Tensor, "B L D"], memory: object, visibility: Visibility) -> Mapping[str, Tensor]:
        q = self.query(x)
        attended, _ = self._attended(q, visibility, None)
        return self.recurrence.gates(self.project(self._normed(q, attended)), visibility)

    def _attended(self, q: Tensor, visibility: Visibility, state: State | None) -> tuple[Tensor | None, State | None]:
        """What the head attends to (B, L, d_proj), if there is one, and the state with these tokens."""
        if self.key_value is None:
            return None, state
        q_heads, k, v, mask, state = self._attention(q, visibility, state)
        return attend(q_heads, k, v, mask, self.width**-0.5)[:, 0], state

    def _attention(
        self, q: Tensor, visibility: Visibility, state: State | None
    ) -> tuple[Tensor, Tensor, Tensor, Visibility, State | None]:
        """Queries, keys and values (B, 1, .., d_proj), the mask, and the state with these tokens."""
        assert self.key_value is not None
        from_queries = state and "x" in state
        if state and from_queries:
            state, visibility = append_tokens(state, visibility, x=q)
        k, v = self.key_value(state["x"] if state and from_queries else q)[:, None].chunk(2, dim=-1)
        if state and not from_queries:
            state, visibility = append_tokens(state, visibility, k=k, v=v)
            k, v = state["k"], state["v"]
        return q[:, None], k, v, visibility, state

    def _normed(self, q: Tensor, attended: Tensor | None) -> Tensor:
        normed: Tensor = self.norm(q if attended is None or self.alpha is None else q + self.alpha * attended)
        return normed

    def _output(
        self, q: Tensor, attended: Tensor | None, x: Tensor, visibility: Visibility, state: State | None
    ) -> ForwardOutput:
        y, after = self.recurrence(self.project(self._normed(q, attended)), x, visibility, state)
        return ForwardOutput(y, None, after)

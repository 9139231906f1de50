"""Expire-Span: every token decides how long it stays in memory. Softmax attention whose weights fade out with the age
of a key, for all heads of a layer alike:

    e_i = max_span * sigmoid((w . h_i + b) / pre_div)        the span of token i, from the input of the layer
    m_ti = clamp(1 + (e_i - (t - i)) / ramp, 0, 1)           1 within the span, then falling to 0
    a'_ti = m_ti a_ti / sum_j m_tj a_tj                      = softmax(scores + log m)

What is faded out is dropped by `trim`, for each row by itself. The penalty is the sum of the spans of the tokens of a
row, each once in its life: the gradient of the penalty is the weight for each span, as in the authors' code, which
sums what is left of each span within the ramp. Spans of the memory are computed again from its inputs without gradient,
so w and b also learn when a token expires.
Source: Sukhbaatar et al. 2021, arXiv:2105.06548, section 4; its code divides only w . h_i by `pre_div`.
"""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.attention import MultiHeadAttention, MultiHeadSettings, attention_weights
from mini_tf.nn.layers.attention_kernels import attend, repeat_kv
from mini_tf.nn.mixer import AttentionDims, ExplicitAttention, ForwardOutput, LayerSpec
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.state import State
from mini_tf.nn.token_cache import append_tokens, select_tokens, token_positions_of
from mini_tf.nn.token_positions import Visibility
from mini_tf.system.seeds import seed_of


class Settings(MultiHeadSettings):
    SUPPORTS = frozenset({"causal", "packing", "streaming", "rotary", "bias", "nonnegative"})
    TRAINING_KEYS = frozenset({"span_loss_weight", "initial_span", "noisy"})

    max_span: int = Field(128, ge=1, le=2**20)
    """Longest span, in tokens."""
    ramp: int = Field(32, ge=1, le=2**20)
    """Tokens over which a token fades out behind its span."""
    span_loss_weight: float = Field(1e-4, ge=0, le=1e6)
    """Weight of the mean span of a token in the loss."""
    initial_span: float = Field(0.1, gt=0, lt=1)
    """Share of max_span that all spans begin with."""
    pre_div: float = Field(1.0, gt=0, le=1e6)
    """Divisor of w . h + b: larger values make spans change more slowly."""
    noisy: bool = False
    """In training, spans are cut at a random share of max_span, another one in each step, against overfitting."""

    @property
    def memory_bound(self) -> int:
        """`Mixer.trim` asserts it."""
        return self.max_span + self.ramp

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "ExpireSpan":
        if layer.attention == "cross":
            raise ValueError("expire_span has no cross-attention: tokens of a source have no age")
        return ExpireSpan(self, dims, layer)


class ExpireSpan(MultiHeadAttention):
    """The state holds spans beside keys and values, or in training inputs of the layer (`x`) only."""

    def __init__(self, settings: Settings, dims: AttentionDims, layer: LayerSpec) -> None:
        super().__init__(settings, dims, layer)
        self.settings, self.memory_cache = settings, "inputs"
        self.span_weight = nn.Parameter(torch.zeros(dims.d_model))
        self.span_bias = nn.Parameter(torch.tensor(-settings.pre_div * math.log(1 / settings.initial_span - 1)))
        self.register_buffer("limit", torch.tensor(float(settings.max_span)), persistent=False)
        self.limit: Tensor

    def start(self, batch: int) -> State:
        state = super().start(batch)
        return state if "x" in state else state | {"spans": self.span_weight.new_empty(batch, 0)}

    def spans(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B L"]:
        """The span of each token."""
        scores = (x * self.span_weight).sum(-1) + self.span_bias
        return self.settings.max_span * torch.sigmoid(scores / self.settings.pre_div)

    def forward(
        self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility, state: State | None = None
    ) -> ForwardOutput:
        queries = visibility
        if state and "x" in state:
            q, k, v, visibility, state = self.project_cached_inputs(x, visibility, state)
            spans = self.spans(state["x"])
            new_spans = spans[:, -x.shape[1] :]
        else:
            q, k, v = self.project(x, memory, visibility)
            new_spans = spans = self.spans(x)
            if state:
                state, visibility = append_tokens(state, visibility, k=k, v=v, spans=new_spans)
                k, v, spans = state["k"], state["v"], state["spans"]
        if self.training and self.settings.noisy:
            spans = spans.minimum(self.limit)
        fading = Fading(self._bias_encoding, spans, self.settings.ramp)
        attended = attend(q, k, v, visibility, self.scale, fading, self.dropout_rate if self.training else 0.0)
        segments = queries.queries.segments
        total = new_spans.sum() if segments is None else (new_spans * (segments != 0)).sum()
        return self.join(attended, x, visibility, state)._replace(penalty=self.settings.span_loss_weight * total)

    def explicit(self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility) -> ExplicitAttention:
        q, k, v = self.project(x, memory, visibility)
        k, v = repeat_kv(k, q.shape[1]), repeat_kv(v, q.shape[1])
        fading = Fading(self._bias_encoding, self.spans(x), self.settings.ramp)
        return ExplicitAttention(attention_weights(q, k, visibility, self.scale, fading), v)

    def trim(self, state: State) -> State:
        """Drop, in each row, tokens that no later token sees; rows with fewer tokens than others are padded."""
        visible = self._visible_later(state)
        n = int(visible.sum(1).max())
        assert n <= self.settings.memory_bound, f"{n} tokens in memory exceed max_span + ramp"
        return state if n == visible.shape[1] else select_tokens(state, visible, n)

    def observe(
        self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility
    ) -> Mapping[str, Tensor]:
        """spans (B, L) and ramp (B)."""
        return {"spans": self.spans(x), "ramp": torch.full((len(x),), self.settings.ramp)}

    def refresh(self, seed: int, step: int) -> bool:
        if self.settings.noisy:
            generator = torch.Generator().manual_seed(seed_of(seed, "spans", step))
            self.limit.fill_(float(torch.rand((), generator=generator)) * self.settings.max_span)
        return False

    @torch.no_grad()
    def metrics(self, state: State | None) -> Mapping[str, tuple[Tensor, Tensor | int]]:
        """memory.ideal: tokens that the next token of a row sees; memory.real: tokens kept, the most of any row."""
        if not state:
            return {}
        n_visible = self._visible_later(state).sum(1)
        return {"memory.ideal": (n_visible.sum(), len(n_visible)), "memory.real": (n_visible.max(), 1)}

    def _visible_later(self, state: State) -> Bool[Tensor, "B M"]:
        """Tokens that the next token of the row sees."""
        spans = self.spans(state["x"]) if "x" in state else state["spans"]
        segments, positions = token_positions_of(state).tensors(len(spans), spans.device)
        age = positions[:, -1:] + 1 - positions
        return (segments == segments[:, -1:]) & (segments != 0) & (spans + self.settings.ramp > age)


class Fading(PositionalEncoding):
    """log m as a bias of the attention scores, beside that of a positional encoding. spans (B, M)."""

    applies_to = frozenset({"bias"})
    distance_only = False

    def __init__(self, encoding: PositionalEncoding | None, spans: Tensor, ramp: int) -> None:
        super().__init__()
        self._encoding, self.spans, self.ramp = (encoding,), spans, ramp

    def bias(self, distance: Tensor, q: Tensor | None = None, k: Tensor | None = None) -> Tensor:
        [encoding] = self._encoding
        fade = (1 + (self.spans[:, None] - distance) / self.ramp).clamp(0, 1)[:, None]  # (B, 1, L, M)
        faded = fade == 0
        log = fade.masked_fill(faded, 1.0).log().masked_fill(faded, -torch.inf)
        bias = None if encoding is None else encoding.bias(distance, q, k)
        return log if bias is None else log + bias.to(log.dtype)

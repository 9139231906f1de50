"""Diminishing attention: cross-attention that gives less weight to source tokens that have already had much.

    c_it = a_i1 + ... + a_it           coverage of source token i after target token t; a: softmax attention weights
    w_it = F(c_it) - F(c_i,t-1)        attention weight: the gain in effective coverage

in each layer and head. F is concave and does not decrease, and F(0) = 0, so the effective coverage is submodular:
w_it <= F'(c_i,t-1) a_it, and the weights of a source token over all target tokens sum to F of its coverage. A row sums
to less than 1, and to less the longer the target is. There are no parameters. `renormalize` is not in the paper; the
paper's dynamic variant, whose formula we could not find, is not here.

F has a finite slope at 0. The slope of x^p with p < 1 is infinite there: a weight of 0.01 would become 0.1 for p = 1/2,
the first row would sum to more than 1, and the gradient of a weight of 0 would be infinite. So `power` is shifted.

Weights are computed in fp32 or more, as the coverage by a long target would lose small ones. Time is O(L M), as of
softmax attention. So is memory per head, as there is no fused kernel; above MASK_ELEMENTS weights queries are computed
in blocks, which are recomputed in the backward pass.
Source: Han, Lin, Joty 2019, "Resurrecting Submodularity for Neural Text Generation", arXiv:1911.03014, section 4.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from mini_tf.nn.attention import MultiHeadAttention, MultiHeadSettings, attention_weights
from mini_tf.nn.layers.attention_kernels import MASK_ELEMENTS, recomputed, repeat_kv
from mini_tf.nn.layers.kernels import cumulative_sum
from mini_tf.nn.mixer import Ability, AttentionDims, ExplicitAttention, ForwardOutput, LayerSpec, MixerSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import Visibility
from mini_tf.recipe.kinds import Rules

Gain = Callable[[Tensor, Tensor], Tensor]
"""(coverage c, attention weights a) -> F(c + a) - F(c), computed without cancellation."""


class Settings(MultiHeadSettings):
    SUPPORTS = frozenset({"cross", "packing", "nonnegative"})

    function: Literal["log1p", "sqrt1p", "power", "cap", "identity"] = "log1p"
    """F(x): log(1 + x), sqrt(1 + x) - 1, ((1 + x)^power - 1) / power, min(x, cap), or x (softmax attention)."""
    power: float = Field(0.5, gt=0, le=1)
    """Exponent of the function power: 1 is softmax attention; near 0 it is log1p."""
    cap: float = Field(1.0, gt=0, le=1e6)
    """Largest coverage of the function cap: a source token that has it gets no more weight."""
    renormalize: bool = False
    """Weights of a query are scaled to sum 1, so attention moves to source tokens with less coverage."""

    @property
    def supports(self) -> frozenset[Ability]:
        return self.SUPPORTS | {"unordered"} if self.function == "identity" else self.SUPPORTS

    def rules(self) -> Rules:
        for key in ("power", "cap"):
            if self.function != key and getattr(self, key) != type(self).model_fields[key].default:
                yield key, f"has no effect on the function {self.function}; use function: {key}"
        if self.function == "identity" and self.renormalize:
            yield (
                "renormalize",
                "has no effect on the function identity, whose weights sum to 1; use renormalize: false",
            )

    def shared_keys(self, other: MixerSettings) -> frozenset[str] | None:
        return frozenset({"qk_norm", "scale"}) if isinstance(other, MultiHeadSettings) else None

    def gain(self) -> Gain:
        p, cap = self.power, self.cap
        gains: dict[str, Gain] = {
            "log1p": lambda c, a: (a / (1 + c)).log1p(),
            "sqrt1p": lambda c, a: a / ((1 + c + a).sqrt() + (1 + c).sqrt()),
            "power": lambda c, a: (1 + c) ** p * torch.expm1(p * (a / (1 + c)).log1p()) / p,
            "cap": lambda c, a: a.minimum((cap - c).clamp(min=0)),
            "identity": lambda c, a: a,
        }
        return gains[self.function]

    def build(self, dims: AttentionDims, layer: LayerSpec) -> MultiHeadAttention:
        if layer.attention == "self":
            raise ValueError("diminishing attention is cross-attention: coverage is of a source that does not change")
        return MultiHeadAttention(self, dims, layer) if self.function == "identity" else Diminishing(self, dims, layer)


class Diminishing(MultiHeadAttention):
    """The state holds the coverage (rows, H, M), M = 0 before the first token: of each row, not of each source."""

    def __init__(self, settings: Settings, dims: AttentionDims, layer: LayerSpec) -> None:
        super().__init__(settings, dims, layer)
        self.gain, self.renormalize = settings.gain(), settings.renormalize

    def start(self, batch: int) -> State:
        weight = self.out.weight
        dtype = torch.promote_types(weight.dtype, torch.float32)
        return {"coverage": weight.new_empty(batch, self.dims.n_heads, 0, dtype=dtype)}

    def forward(
        self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility, state: State | None = None
    ) -> ForwardOutput:
        q, k, v = self.project(x, memory, visibility)
        attended, coverage = self._attend(q, k, v, visibility, (state or {}).get("coverage"))
        return self.join(attended, x, visibility, None if state is None else {"coverage": coverage})

    def explicit(self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility) -> ExplicitAttention:
        q, k, v = self.project(x, memory, visibility)
        weights, _ = self._diminish(self._softmax(q, k, visibility), visibility.rows_per_source, None)
        return ExplicitAttention(weights.to(v.dtype), repeat_kv(v, q.shape[1]))

    def observe(
        self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility
    ) -> Mapping[str, Tensor]:
        """attention: the weights before earlier queries diminish them."""
        q, k, _ = self.project(x, memory, visibility)
        return {"attention": self._softmax(q, k, visibility)}

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility, before: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Weighted sums of the values, and the coverage afterwards; a long target in blocks of queries."""
        length, source = q.shape[2], k.shape[2]
        size = max(1, MASK_ELEMENTS // (q.shape[0] * q.shape[1] * source))
        if length <= size or visibility.rows_per_source > 1:
            return self._attend_once(q, k, v, visibility, before)
        parts = []
        for first in range(0, length, size):
            block = slice(first, min(first + size, length))
            arguments = (q[:, :, block], k, v, visibility.span(block, slice(0, source)), before)
            if torch.is_grad_enabled():
                attended, before = recomputed(self._attend_once, *arguments, draws=self.dropout_rate > 0)
            else:
                attended, before = self._attend_once(*arguments)
            parts.append(attended)
        assert before is not None
        return torch.cat(parts, dim=2), before

    def _attend_once(
        self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility, before: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        weights, coverage = self._diminish(self._softmax(q, k, visibility), visibility.rows_per_source, before)
        weights = F.dropout(weights, self.dropout_rate, self.training).to(v.dtype)
        return weights @ repeat_kv(v, q.shape[1]), coverage  # (B,H,L,M) @ (B,H,M,V) -> (B,H,L,V)

    def _softmax(self, q: Tensor, k: Tensor, visibility: Visibility) -> Float[Tensor, "B H L M"]:
        with torch.autocast(q.device.type, enabled=False):
            dtype = torch.promote_types(q.dtype, torch.float32)
            return attention_weights(q.to(dtype), repeat_kv(k, q.shape[1]).to(dtype), visibility, self.scale)

    def _diminish(
        self, a: Float[Tensor, "B H L M"], rows: int, before: Float[Tensor, "R H N"] | None
    ) -> tuple[Float[Tensor, "B H L M"], Float[Tensor, "R H M"]]:
        """Weights, and the coverage afterwards. rows: `rows_per_source`; before: coverage before, N = 0 or M."""
        batch = len(a)
        a = a.unflatten(2, (rows, -1)).transpose(1, 2).flatten(0, 1)  # (B,H,rows*L,M) -> (R,H,L,M), R = B * rows
        begin = torch.zeros_like(a[:, :, :1]) if before is None or not before.shape[2] else before[:, :, None]
        coverage = cumulative_sum(torch.cat([begin, a], dim=2), dim=2)
        weights = self.gain(coverage[:, :, :-1], a)
        if self.renormalize:
            total = weights.sum(dim=-1, keepdim=True)
            weights = weights / total.masked_fill(total == 0, 1.0)  # a query without visible keys, or with full ones
        return weights.unflatten(0, (batch, rows)).transpose(1, 2).flatten(2, 3), coverage[:, :, -1]

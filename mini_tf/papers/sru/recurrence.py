"""What `sru` and `srupp` share: the gates and the elementwise recurrence behind a projection, with their state.

    c_t = f_t * c_{t-1} + (1 - f_t) * x_t          f_t = sigmoid(a_t), or with a gate that reads the state
                                                   f_t = sigmoid(a_t + v * c_{t-1})

Gradients are hand-written. A linear recurrence is computed in chunks: all chunks of sqrt(L) tokens at once, then the
states between them, so there are about 2 sqrt(L) dependent steps and no division, whatever the size of f. A gate that
reads the state leaves only a loop over the tokens, of three operations on (B, D) each; its gradient is a linear
recurrence again. On a CPU a step of the loop is bound by the calls, about 15 microseconds for up to 10,000 numbers.
Source: Lei et al. 2018, arXiv:1709.02755, sections 2 and 3; Lei 2021, arXiv:2102.12459, section 2.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mini_tf.nn.layers.kernels import graph_operator
from mini_tf.nn.mixer import ExplicitAttention, MixerSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import Visibility


class RecurrenceSettings(MixerSettings):
    SUPPORTS = frozenset({"causal", "packing", "nonnegative"})
    TRAINING_KEYS = frozenset({"forget_bias"})

    state_gates: bool = True
    """The gates read the previous state; false: all tokens are computed in parallel."""
    forget_bias: float = Field(0.0, ge=-20, le=20)
    """Initial bias of the forget gate: with 0 a state fades by half per token, with 4 by a fiftieth."""
    highway_bias: float = Field(-2.0, ge=-20, le=20)
    """Initial bias of the reset gate; below 0 the layer passes its input on at first."""


class Recurrence(nn.Module):
    """c_t = f_t c_{t-1} + (1 - f_t) u_t;  h_t = r_t c_t + (1 - r_t) alpha x_t, from u and the inputs of both gates.

    alpha = sqrt(1 + 2 exp(highway_bias)) keeps the variance of x at first. All in fp32 or more.
    """

    NO_GRAPH = "a recurrence takes as many steps as there are tokens"

    def __init__(self, d_model: int, settings: RecurrenceSettings) -> None:
        super().__init__()
        self.d_model, self.alpha = d_model, math.sqrt(1 + 2 * math.exp(settings.highway_bias))
        self.forget_bias = nn.Parameter(torch.full((d_model,), settings.forget_bias))
        self.reset_bias = nn.Parameter(torch.full((d_model,), settings.highway_bias))
        self.forget_state = nn.Parameter(torch.empty(d_model).uniform_(-1, 1)) if settings.state_gates else None
        self.reset_state = nn.Parameter(torch.empty(d_model).uniform_(-1, 1)) if settings.state_gates else None

    def start(self, batch: int) -> State:
        bias = self.forget_bias
        c = bias.new_zeros(batch, self.d_model, dtype=torch.promote_types(bias.dtype, torch.float32))
        return {"c": c, "segment": torch.zeros(batch, dtype=torch.long, device=bias.device)}

    def forward(
        self, u: Float[Tensor, "B L N"], x: Float[Tensor, "B L D"], visibility: Visibility, state: State | None
    ) -> tuple[Float[Tensor, "B L D"], State | None]:
        """h, and the new state if one is given. u: candidates and the inputs of the gates, N = 3 D."""
        begin, restart = state or self.start(len(u)), self._restarts(visibility, state)
        with torch.autocast(u.device.type, enabled=False):
            candidate, forget, reset = _float(u).split(self.d_model, dim=-1)
            c = recur(forget + self.forget_bias, candidate, self.forget_state, begin["c"], restart)
            reset = reset + self.reset_bias
            if self.reset_state is not None:
                reset = torch.addcmul(reset, self.reset_state, previous_states(c, begin["c"], restart))
            h = torch.lerp(self.alpha * _float(x), c, reset.sigmoid())
        if state is None:
            return h.to(x.dtype), None
        segments = visibility.queries.segments
        last = torch.ones_like(state["segment"]) if segments is None else segments[:, -1]
        return h.to(x.dtype), state | {"c": c[:, -1], "segment": last}

    def step(
        self, u: Float[Tensor, "B N"], x: Float[Tensor, "B D"], state: State
    ) -> tuple[Float[Tensor, "B D"], State]:
        """`forward` of one token per row that continues its document."""
        c = state["c"]
        candidate, forget, reset = _float(u).split_with_sizes([self.d_model] * 3, dim=1)
        forget, reset = forget + self.forget_bias, reset + self.reset_bias
        if self.forget_state is not None and self.reset_state is not None:
            forget, reset = torch.addcmul(forget, self.forget_state, c), torch.addcmul(reset, self.reset_state, c)
        c = torch.lerp(candidate, c, forget.sigmoid_())
        return torch.lerp(self.alpha * _float(x), c, reset.sigmoid_()).to(x.dtype), state | {"c": c}

    def gates(self, u: Float[Tensor, "B L N"], visibility: Visibility) -> dict[str, Tensor]:
        """(B, L, D), at the beginning of a text: forget, the share of the state that is kept; reset, that of the state
        in the output, beside the input.
        """
        start, restart = self.start(len(u))["c"], self._restarts(visibility, None)
        candidate, forget, reset = _float(u).split(self.d_model, dim=-1)
        forget, reset = forget + self.forget_bias, reset + self.reset_bias
        if self.forget_state is not None and self.reset_state is not None:
            before = previous_states(recur(forget, candidate, self.forget_state, start, restart), start, restart)
            forget, reset = forget + self.forget_state * before, reset + self.reset_state * before
        return {"forget": forget.sigmoid(), "reset": reset.sigmoid()}

    def _restarts(self, visibility: Visibility, state: State | None) -> Tensor | None:
        """(B, L): True where another document begins; None in a row of one."""
        segments = visibility.queries.segments
        if segments is None:
            return None
        last = torch.zeros_like(segments[:, 0]) if state is None or not state else state["segment"]
        return segments != torch.cat([last[:, None], segments[:, :-1]], dim=1)


def _float(x: Tensor) -> Tensor:
    """In fp32 or more: a state is a sum over many tokens."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def no_heads(x: Float[Tensor, "B L D"]) -> ExplicitAttention:
    """Of a mixer without attention heads."""
    batch, length = x.shape[:2]
    return ExplicitAttention(x.new_zeros(batch, 0, length, length), x.new_zeros(batch, 0, length, 1))


def recur(
    a: Float[Tensor, "B L D"],
    x: Float[Tensor, "B L D"],
    v: Float[Tensor, " D"] | None,
    start: Float[Tensor, "B D"],
    restart: Bool[Tensor, "B L"] | None = None,
) -> Float[Tensor, "B L D"]:
    """The states c_1 .. c_L after `start`; v None: the gate does not read the state. restart: c_{t-1} counts as 0."""
    c: Tensor = _Recurrence.apply(a, x, v, start, restart)
    return c


def previous_states(
    c: Float[Tensor, "B L D"], start: Float[Tensor, "B D"], restart: Tensor | None
) -> Float[Tensor, "B L D"]:
    """c_{t-1} for every token t, 0 where the state restarts."""
    before = torch.cat([start[:, None], c[:, :-1]], dim=1)
    return before if restart is None else before.masked_fill(restart[..., None], 0.0)


@graph_operator("Tensor a, Tensor x, Tensor v, Tensor start, Tensor? restart")
def one_by_one(a: Tensor, x: Tensor, v: Tensor, start: Tensor, restart: Tensor | None) -> Tensor:
    """The states where the gate reads them."""
    c, before = torch.empty_like(x), start
    for t in range(x.shape[1]):
        if restart is not None:
            before = before.masked_fill(restart[:, t, None], 0.0)
        f_t = torch.addcmul(a[:, t], v, before).sigmoid_()
        before = torch.lerp(x[:, t], before, f_t, out=c[:, t])
    return c


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, x: Tensor, v: Tensor | None, start: Tensor, restart: Tensor | None) -> Tensor:
        if v is None:
            f = a.sigmoid()
            keep = f if restart is None else f.masked_fill(restart[..., None], 0.0)
            c = scan(keep, torch.lerp(x, torch.zeros_like(x), f), start)
        else:
            c = one_by_one(a, x, v, start, restart)
        ctx.save_for_backward(a, x, v, start, restart, c)
        return c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        a, x, v, start, restart, c = ctx.saved_tensors
        before = previous_states(c, start, restart)
        f = a.sigmoid() if v is None else torch.addcmul(a, v, before).sigmoid_()
        slope = (before - x) * f * (1 - f)  # dc_t / da_t
        # dc_t / dc_{t-1}; the gradient of all that follows c_t runs backward over it.
        through = f if v is None else torch.addcmul(f, v, slope)
        through = through if restart is None else through.masked_fill(restart[..., None], 0.0)
        later = torch.cat([through[:, 1:], torch.zeros_like(through[:, :1])], dim=1)
        total = scan(later.flip(1), gradient.flip(1), torch.zeros_like(start)).flip(1)
        d_a = total * slope
        d_v = None if v is None else (d_a * before).sum((0, 1))
        return d_a, total * (1 - f), d_v, total[:, 0] * through[:, 0], None


@graph_operator("Tensor f, Tensor x, Tensor start")
def scan(f: Float[Tensor, "B L D"], x: Float[Tensor, "B L D"], start: Float[Tensor, "B D"]) -> Float[Tensor, "B L D"]:
    """c_t = f_t * c_{t-1} + x_t, in chunks of sqrt(L) tokens; no gradient."""
    batch, length, d = x.shape
    size = max(1, math.isqrt(length))
    n = -(-length // size)
    if pad := n * size - length:
        f, x = (F.pad(t, (0, 0, 0, pad)) for t in (f, x))
    f, x = f.reshape(batch, n, size, d), x.reshape(batch, n, size, d)
    c, product = torch.empty_like(x), torch.empty_like(f)  # as if each chunk began at 0, and its product of f so far
    c[:, :, 0], product[:, :, 0] = x[:, :, 0], f[:, :, 0]
    for t in range(1, size):
        torch.addcmul(x[:, :, t], f[:, :, t], c[:, :, t - 1], out=c[:, :, t])
        torch.mul(product[:, :, t - 1], f[:, :, t], out=product[:, :, t])
    before = torch.empty_like(c[:, :, 0])  # (B, n, D): the state before each chunk
    before[:, 0] = start
    for chunk in range(1, n):
        torch.addcmul(c[:, chunk - 1, -1], product[:, chunk - 1, -1], before[:, chunk - 1], out=before[:, chunk])
    return c.addcmul_(product, before[:, :, None]).reshape(batch, n * size, d)[:, :length]

"""What `sru` and `srupp` share: the gates and the recurrence behind a projection, with their state.

Source: Lei et al. 2018, arXiv:1709.02755, sections 2 and 3; Lei 2021, arXiv:2102.12459, section 2.
"""

import math

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.mixer import MixerSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import Visibility
from mini_tf.papers.sru.chunks import previous_states, recur


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

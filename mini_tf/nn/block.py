"""One layer: self-attention, cross-attention and feed-forward, each optional and each in a residual step.

    pre-norm:   x + dropout(part(norm(x)))          post-norm:   norm(x + dropout(part(x)))

Encoder and decoder layers: self-attention + feed-forward; decoder layer of an encoder-decoder: self-attention +
cross-attention + feed-forward; layer with latent queries (Perceiver): cross-attention + feed-forward.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from mini_tf.nn.layers.kernels import Dropout
from mini_tf.nn.mixer import ForwardOutput, Mixer, carry, sum_penalties
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import Visibility


class CrossInput(NamedTuple):
    """Input of a cross-attention layer: the memory (B, M, d_memory), or the mixer's `recall` of it, and the mask.

    If the memory has fewer rows than x, each of its rows serves a group of neighboring rows (beams of one source);
    `visibility.queries` then has the tokens of a group in one row.
    """

    memory: Any
    visibility: Visibility


class ResidualStep(nn.Module):
    """A residual step around `part`, with pre-norm, post-norm or no norm (Identity)."""

    def __init__(self, part: nn.Module, norm: nn.Module, post: bool, residual: bool, dropout_rate: float) -> None:
        super().__init__()
        self.part, self.norm, self.post, self.residual = part, norm, post, residual
        self.dropout = Dropout(dropout_rate)

    def part_input(self, x: Tensor) -> Tensor:
        """Input of the part: norm(x) with pre-norm, else x."""
        normed: Tensor = x if self.post else self.norm(x)
        return normed

    def residual_sum(self, x: Tensor, y: Tensor) -> Tensor:
        """The residual stream after the part returned `y` for `x`."""
        y = self.dropout(y)
        y = x + y if self.residual else y
        return self.norm(y) if self.post else y

    def mix(self, x: Tensor, memory: Any, visibility: Visibility, state: State | None) -> ForwardOutput:
        """The step of a mixer; memory None: self-attention."""
        y = self.part_input(x)
        if memory is None:
            mixed: ForwardOutput = self.part(y, y, visibility, state)
        else:  # rows that share a row of the memory are concatenated
            mixed = self.part(y.reshape(-1, visibility.queries.length, y.shape[2]), memory, visibility, state)
        return mixed._replace(y=self.residual_sum(x, mixed.y.view_as(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.residual_sum(x, self.part(self.part_input(x)))


class Block(nn.Module):
    """A layer; `step` wraps each part in its norm, dropout and residual connection.

    parallel: the feed-forward layer has the input of the whole layer, x + attention(norm(x)) + feed_forward(norm'(x)).
    Source: Wang and Komatsuzaki 2021, GPT-J; Black et al. 2022, arXiv:2204.06745, section 2.1.
    """

    def __init__(
        self,
        self_attn: Mixer | None,
        cross_attn: Mixer | None,
        feed_forward: nn.Module | None,
        step: Callable[[nn.Module], ResidualStep],
        parallel: bool = False,
    ) -> None:
        super().__init__()
        self.parallel = parallel
        self.self_attn = None if self_attn is None else step(self_attn)
        self.cross_attn = None if cross_attn is None else step(cross_attn)
        self.feed_forward = None if feed_forward is None else step(feed_forward)

    @property
    def mixers(self) -> dict[str, Any]:
        """The mixers of this layer by name: "self_attn" and "cross_attn"."""
        steps = {"self_attn": self.self_attn, "cross_attn": self.cross_attn}
        return {name: step.part for name, step in steps.items() if step is not None}

    def start(self, batch: int) -> State:
        """The empty state of both mixers."""
        return {name: mixer.start(batch) for name, mixer in self.mixers.items()}

    def trim(self, state: State) -> State:
        """Drop entries of the state that later tokens cannot attend to."""
        return {name: mixer.trim(state[name]) for name, mixer in self.mixers.items() if name in state}

    def carry(self, state: State) -> State:
        """What is kept of the state for the next row of a stream."""
        return {name: carry(mixer, state[name]) for name, mixer in self.mixers.items() if name in state}

    def mix(self, x: Tensor, visibility: Visibility, source: CrossInput | None, state: State | None) -> ForwardOutput:
        """Self-attention, then cross-attention."""
        penalty = None
        new_state: State | None = None if state is None else {}
        for name, step, cross_input in (("self_attn", self.self_attn, None), ("cross_attn", self.cross_attn, source)):
            if step is None:
                continue
            before = None if state is None else state.get(name, {})
            if name == "cross_attn" and cross_input is None:
                raise ValueError("this layer has cross-attention and needs a source")
            memory, mask = (None, visibility) if cross_input is None else cross_input
            mixed = step.mix(x, memory, mask, before)
            x, penalty = mixed.y, sum_penalties(penalty, mixed.penalty)
            if new_state is not None and mixed.state is not None:
                new_state[name] = mixed.state
        return ForwardOutput(x, penalty, new_state)

    def forward(
        self,
        x: Tensor,
        visibility: Visibility,
        source: CrossInput | None = None,
        state: State | None = None,
        at: Tensor | None = None,
    ) -> ForwardOutput:
        """The whole layer: (B, L, D) -> (B, L, D), or (T, D) for the flat indices `at` (T,) into (B, L)."""
        mixed = self.mix(x, visibility, source, state)
        # The feed-forward layer treats each token by itself, so only the selected ones are computed.
        y = mixed.y if at is None else mixed.y.flatten(0, 1)[at]
        if self.feed_forward is None:
            return mixed._replace(y=y)
        if not self.parallel:
            return mixed._replace(y=self.feed_forward(y))
        step, layer_input = self.feed_forward, x if at is None else x.flatten(0, 1)[at]
        return mixed._replace(y=step.residual_sum(y, step.part(step.part_input(layer_input))))

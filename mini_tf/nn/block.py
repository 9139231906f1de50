"""One layer: up to three residual steps, each of which may be absent: own mixer, cross mixer, feed-forward.

    pre:   x + dropout(part(norm(x)))          post:   norm(x + dropout(part(x)))

Encoder layer = own + feed-forward; decoder = the same, causal; decoder of an encoder-decoder = own + cross + feed-forward;
the one that fills latents = cross + feed-forward.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from mini_tf.nn.layers.dropout import Dropout
from mini_tf.nn.mixer import ForwardOutput, Mixer
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import Visibility


class CrossInput(NamedTuple):
    """A memory for cross-attention: a source (B, M, d_memory) or what this layer's mixer recalled of it, and who may see it.

    A memory of fewer rows than there are own ones is read by neighbours together: visibility.queries holds their tokens in one row.
    """

    memory: Any
    visibility: Visibility


class ResidualStep(nn.Module):
    """One residual step around `part`. The norm stands before it, after the sum, or nowhere (Identity)."""

    def __init__(self, part: nn.Module, norm: nn.Module, post: bool, residual: bool, dropout_rate: float) -> None:
        super().__init__()
        self.part, self.norm, self.post, self.residual = part, norm, post, residual
        self.dropout = Dropout(dropout_rate)

    def part_input(self, x: Tensor) -> Tensor:
        """What the part is given."""
        normed: Tensor = x if self.post else self.norm(x)
        return normed

    def residual_sum(self, x: Tensor, y: Tensor) -> Tensor:
        """The stream `x` with the part's answer `y`."""
        y = self.dropout(y)
        y = x + y if self.residual else y
        return self.norm(y) if self.post else y

    def mix(self, x: Tensor, memory: Any, visibility: Visibility, state: State | None) -> ForwardOutput:
        """The step where the part is a mixer; memory None = the tokens themselves."""
        own = self.part_input(x)
        if memory is None:
            mixed: ForwardOutput = self.part(own, own, visibility, state)
        else:  # neighbours that read one row of the memory stand behind each other
            mixed = self.part(own.reshape(-1, visibility.queries.length, own.shape[2]), memory, visibility, state)
        return mixed._replace(y=self.residual_sum(x, mixed.y.view_as(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.residual_sum(x, self.part(self.part_input(x)))


class Block(nn.Module):
    """A layer made of its parts; `step` wraps each part in its norm, dropout and residual."""

    def __init__(
        self, own: Mixer | None, cross: Mixer | None, feed_forward: nn.Module | None, step: Callable[[nn.Module], ResidualStep]
    ) -> None:
        super().__init__()
        self.own = None if own is None else step(own)
        self.cross = None if cross is None else step(cross)
        self.feed_forward = None if feed_forward is None else step(feed_forward)

    @property
    def mixers(self) -> dict[str, Any]:
        """What it has of own mixer and cross mixer."""
        return {name: step.part for name, step in (("own", self.own), ("cross", self.cross)) if step is not None}

    def start(self, batch: int) -> State:
        """The empty state of both mixers."""
        return {name: mixer.start(batch) for name, mixer in self.mixers.items()}

    def trim(self, state: State) -> State:
        """The state without what can no longer matter."""
        return {name: mixer.trim(state[name]) for name, mixer in self.mixers.items() if name in state}

    def mix(self, x: Tensor, visibility: Visibility, source: CrossInput | None, state: State | None) -> ForwardOutput:
        """Everything in which tokens meet: own mixer, then cross mixer."""
        penalty, kept = None, None if state is None else State()
        for name, step, read in (("own", self.own, None), ("cross", self.cross, source)):
            if step is None:
                continue
            before = None if state is None else state.get(name, {})
            if name == "cross" and read is None:
                raise ValueError("this layer has a cross mixer and needs a source to read")
            mixed = step.mix(x, None if read is None else read.memory, visibility if read is None else read.visibility, before)
            x = mixed.y
            penalty = mixed.penalty if penalty is None else penalty if mixed.penalty is None else penalty + mixed.penalty
            if kept is not None and mixed.state is not None:
                kept[name] = mixed.state
        return ForwardOutput(x, penalty, kept)

    def forward(
        self, x: Tensor, visibility: Visibility, source: CrossInput | None = None, state: State | None = None, at: Tensor | None = None
    ) -> ForwardOutput:
        """The whole layer; with `at`, flat indices into (B, L), only those tokens come out: (T, D)."""
        mixed = self.mix(x, visibility, source, state)
        # What follows looks at each token by itself, so only those that are asked for go on.
        y = mixed.y if at is None else mixed.y.flatten(0, 1)[at]
        return mixed._replace(y=y if self.feed_forward is None else self.feed_forward(y))

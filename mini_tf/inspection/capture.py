"""One pass through a model with what passes by kept: attention weights and hidden vectors.

Two passes are made in eval: the model as it trains (fused), and one in which every mixer answers by its `explicit` form.
The largest difference of their scores says how far the weights shown are those that the model works with. Hooks on every
mixer of the stacks that a model declares do it, so a new mixer or model needs no line here. Layers count by call: weights that
several layers share are captured once for each.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mini_tf.nn.mixer import ForwardOutput, Mixer
from mini_tf.nn.model import Model, SequenceKind
from mini_tf.nn.token_positions import Visibility
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import RunFault

OWN_TO_SOURCE: tuple[SequenceKind, SequenceKind] = ("own", "source")
"""What queries and keys of an encoder-decoder's cross-attention stand for."""


class Reading(NamedTuple):
    """Who read whom in one mixer: weights (B, H, L, lead + M), whose first `lead` columns belong to no token.

    kind: what the model calls such mixers (`encoder.self`, `decoder.self`, `cross`); `layer` counts them in the order of their calls,
    from 0. keep (B or 1, L, M): what each token may see, by the model's direction, its document and the mixer's own view (a window).
    rows, columns: what queries and keys stand for.
    """

    kind: str
    layer: int
    weights: Tensor
    lead: int
    keep: Tensor
    rows: SequenceKind = "own"
    columns: SequenceKind = "own"


class Hidden(NamedTuple):
    """One call of a stack: what it is given and what follows each layer, n_calls + 1 tensors (B, L, D). rows: what L stands for."""

    rows: SequenceKind
    layers: list[Float[Tensor, "B L D"]]


@dataclass(frozen=True, eq=False)
class Capture:
    """What was kept of a pass.

    hidden: the calls of stacks in their order, an encoder's first; difference: the largest difference between the scores of the two
    passes.
    """

    readings: list[Reading]
    hidden: list[Hidden]
    difference: float


@dataclass
class _Listener:
    """Collects while its hooks are on the model."""

    readings: list[Reading] = field(default_factory=list)
    hidden: list[Hidden] = field(default_factory=list)

    def mixed(
        self, kind: str, rows: SequenceKind, columns: SequenceKind, mixer: Mixer, given: tuple[Any, ...], mixed: ForwardOutput
    ) -> ForwardOutput:
        x, memory, visibility = given[:3]
        assert isinstance(visibility, Visibility)
        explicit = mixer.explicit(x, memory, visibility)
        layer = sum(reading.kind == kind for reading in self.readings)
        keep = mixer.restrict(visibility).mask_rows(0, visibility.queries.length, x.device)
        self.readings.append(Reading(kind, layer, explicit.weights, explicit.lead, keep, rows, columns))
        joined = mixer.join(explicit.weights @ explicit.values, x, visibility)  # (B,H,L,M) @ (B,H,M,V) -> (B,H,L,V)
        return mixed._replace(y=joined.y)

    def begun(self, rows: SequenceKind, stack: nn.Module, given: tuple[Any, ...]) -> None:
        self.hidden.append(Hidden(rows, [given[0]]))

    def passed(self, block: nn.Module, given: tuple[Any, ...], mixed: ForwardOutput) -> None:
        self.hidden[-1].layers.append(mixed.y)


@torch.no_grad()
def capture(model: Model, inputs: Tokens, source: Tokens | None = None) -> Capture:
    """Everything that passes by while `model`, in eval and not compiled, reads `inputs`, a model of pairs besides them `source`.

    Raises RunFault where scores are not finite numbers.
    """
    assert not model.training, "dropout would show in the weights"
    scores = model.logits(model(inputs, source).y)
    listener = _Listener()
    with ExitStack() as hooks:
        for hook in _listen(model, listener):
            hooks.enter_context(hook)
        explicit = model.logits(model(inputs, source).y)
    if not (torch.isfinite(scores).all() and torch.isfinite(explicit).all()):
        raise RunFault("the model's scores are not finite numbers: its training diverged", hint="choose an earlier one: --step N")
    return Capture(listener.readings, listener.hidden, (scores - explicit).abs().max().item())


def sorts_of(model: Model) -> dict[str, tuple[SequenceKind, SequenceKind]]:
    """What the model calls its sorts of mixers, and what queries and keys of each stand for."""
    found: dict[str, tuple[SequenceKind, SequenceKind]] = {}
    for one in model.stacks():
        blocks = one.stack.blocks
        found |= {one.attention: (one.rows, one.rows)} if any(block.own is not None for block in blocks) else {}
        found |= {one.cross: (one.rows, one.memory)} if any(block.cross is not None for block in blocks) else {}
    return found


def _listen(model: Model, listener: _Listener) -> Iterator[RemovableHandle]:
    for one in model.stacks():
        yield one.stack.register_forward_pre_hook(partial(listener.begun, one.rows))
        for block in one.stack.blocks:
            yield block.register_forward_hook(listener.passed)
            if block.own is not None:
                yield block.own.part.register_forward_hook(partial(listener.mixed, one.attention, one.rows, one.rows))
            if block.cross is not None:
                yield block.cross.part.register_forward_hook(partial(listener.mixed, one.cross, one.rows, one.memory))

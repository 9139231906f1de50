"""Attention weights and hidden states of a forward pass, captured by hooks.

Two forward passes are compared in eval mode: the usual one (fused attention), and one in which every mixer computes its
output from `explicit`. The largest difference of their logits shows whether the captured weights are those of the
model; a ResultWarning is given where they may not be. Hooks are registered on every mixer of the declared stacks.
Layers are numbered by call, so a layer with shared weights is captured once per call.
"""

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mini_tf.nn.mixer import ForwardOutput, Mixer
from mini_tf.nn.model import Model
from mini_tf.nn.model_stack import SequenceKind
from mini_tf.nn.token_positions import Visibility
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import ResultWarning, RunFault

TOLERANCE = 1e-3
"""Above this difference of logits, attention weights and hidden states may not be those of the model."""
OWN_TO_SOURCE: tuple[SequenceKind, SequenceKind] = ("own", "source")
"""Sequences of the queries and keys in the cross-attention of an encoder-decoder."""


class CapturedAttention(NamedTuple):
    """Attention weights (B, H, L, lead + M) of one mixer; the first `lead` columns belong to no token.

    kind: name of these mixers in the model (`encoder.self`, `decoder.self`, `cross`); layer: number of the call among
    this kind, from 0. mask (B or 1, L, M): True where a query may attend, by direction, document and the mixer's own
    restriction (a window). queries, keys: their sequences.
    """

    kind: str
    layer: int
    weights: Tensor
    lead: int
    mask: Tensor
    queries: SequenceKind = "own"
    keys: SequenceKind = "own"


class HiddenStates(NamedTuple):
    """One call of a stack: its input and the output of each layer, n_calls + 1 tensors (B, L, D).

    rows: their sequence.
    """

    rows: SequenceKind
    layers: list[Float[Tensor, "B L D"]]


@dataclass(frozen=True, eq=False)
class Capture:
    """Everything captured in a forward pass.

    hidden: calls of stacks in their order, the encoder first; difference: largest absolute difference of logits between
    explicit and fused attention.
    """

    attention: list[CapturedAttention]
    hidden: list[HiddenStates]
    difference: float


@dataclass
class _Recorder:
    """Hooks and the tensors that they record."""

    attention: list[CapturedAttention] = field(default_factory=list)
    hidden: list[HiddenStates] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)

    def record_attention(
        self,
        kind: str,
        queries: SequenceKind,
        keys: SequenceKind,
        mixer: Mixer,
        inputs: tuple[Any, ...],
        output: ForwardOutput,
    ) -> ForwardOutput:
        x, memory, visibility = inputs[:3]
        assert isinstance(visibility, Visibility)
        explicit = mixer.explicit(x, memory, visibility)
        layer = self.calls[kind]
        self.calls[kind] += 1
        if mixer.has_heads:
            mask = (explicit.visibility or visibility).mask_rows(0, visibility.queries.length, x.device)
            self.attention.append(CapturedAttention(kind, layer, explicit.weights, explicit.lead, mask, queries, keys))
        joined = mixer.join(explicit.weights @ explicit.values, x, visibility)  # (B,H,L,M) @ (B,H,M,V) -> (B,H,L,V)
        return output._replace(y=joined.y)

    def record_stack_input(self, rows: SequenceKind, stack: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.hidden.append(HiddenStates(rows, [inputs[0]]))

    def record_block_output(self, block: nn.Module, inputs: tuple[Any, ...], output: ForwardOutput) -> None:
        self.hidden[-1].layers.append(output.y)


@contextmanager
def observed(mixers: Iterable[Mixer]) -> Iterator[list[tuple[int, Mapping[str, Tensor]]]]:
    """Within this context, what each call of a mixer observes, with the number of the mixer; nothing of those that
    observe nothing.
    """
    tensors: list[tuple[int, Mapping[str, Tensor]]] = []

    def record(number: int, mixer: Mixer, inputs: tuple[Any, ...]) -> None:
        if named := mixer.observe(*inputs[:3]):
            tensors.append((number, named))

    with ExitStack() as hooks:
        for number, mixer in enumerate(mixers):
            hooks.enter_context(mixer.register_forward_pre_hook(partial(record, number)))
        yield tensors


def own_mixers(model: Model) -> list[Mixer]:
    """The self-attention of all layers of all stacks."""
    parts = [block.own.part for one in model.stacks() for block in one.stack.blocks if block.own is not None]
    return [part for part in parts if isinstance(part, Mixer)]


@torch.no_grad()
def capture(model: Model, inputs: Tokens, source: Tokens | None = None) -> Capture:
    """Capture attention weights and hidden states of a model in eval mode that is not compiled.

    source: needed by an encoder-decoder. Raises RunFault if logits are not finite. ResultWarning if they differ.
    """
    assert not model.training, "dropout would change the weights"
    logits = _logits(model, inputs, source)
    recorder = _Recorder()
    with ExitStack() as hooks:
        for hook in _register_hooks(model, recorder):
            hooks.enter_context(hook)
        explicit = _logits(model, inputs, source)
    if not (torch.isfinite(logits).all() and torch.isfinite(explicit).all()):
        raise RunFault(
            "the model's logits are not finite: its training diverged", hint="choose an earlier checkpoint: --step N"
        )
    difference = (logits - explicit).abs().max().item()
    if difference > TOLERANCE:
        message = f"explicit and fused attention differ by more than {TOLERANCE:g} in their logits"
        warnings.warn(f"{message}: what is shown may not be what the model computes", ResultWarning, stacklevel=2)
    return Capture(recorder.attention, recorder.hidden, difference)


def _logits(model: Model, inputs: Tokens, source: Tokens | None) -> Tensor:
    output: ForwardOutput = model(inputs, source)
    return model.logits(output.y, copies=output.copies)


def attention_kinds(model: Model) -> dict[str, tuple[SequenceKind, SequenceKind]]:
    """Kinds of attention of the model by name, with the sequences of their queries and keys."""
    kinds: dict[str, tuple[SequenceKind, SequenceKind]] = {}
    for one in model.stacks():
        mixers = [block.mixers for block in one.stack.blocks]
        kinds |= (
            {one.attention: (one.rows, one.rows)}
            if any("own" in each and each["own"].has_heads for each in mixers)
            else {}
        )
        kinds |= {one.cross: (one.rows, one.memory)} if any("cross" in each for each in mixers) else {}
    return kinds


def _register_hooks(model: Model, recorder: _Recorder) -> Iterator[RemovableHandle]:
    for one in model.stacks():
        yield one.stack.register_forward_pre_hook(partial(recorder.record_stack_input, one.rows))
        for block in one.stack.blocks:
            yield block.register_forward_hook(recorder.record_block_output)
            if block.own is not None:
                yield block.own.part.register_forward_hook(
                    partial(recorder.record_attention, one.attention, one.rows, one.rows)
                )
            if block.cross is not None:
                yield block.cross.part.register_forward_hook(
                    partial(recorder.record_attention, one.cross, one.rows, one.memory)
                )

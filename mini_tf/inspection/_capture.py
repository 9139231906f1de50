"""Attention weights and hidden states of a forward pass, captured by hooks, and statistics of the weights' softmax.

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
from math import nan
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
SequencePair = tuple[SequenceKind, SequenceKind]
"""Sequences of the queries and of the keys."""
INPUT_TO_SOURCE: SequencePair = ("input", "source")
"""Those in the cross-attention of an encoder-decoder."""


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
    queries: SequenceKind = "input"
    keys: SequenceKind = "input"


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
        self, kind: str, pair: SequencePair, mixer: Mixer, inputs: tuple[Any, ...], output: ForwardOutput
    ) -> ForwardOutput:
        x, memory, visibility = inputs[:3]
        assert isinstance(visibility, Visibility)
        explicit = mixer.explicit(x, memory, visibility)
        layer = self.calls[kind]
        self.calls[kind] += 1
        if mixer.has_heads:
            mask = (explicit.visibility or visibility).mask_rows(0, visibility.queries.length, x.device)
            self.attention.append(CapturedAttention(kind, layer, explicit.weights, explicit.lead, mask, *pair))
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


def self_attn_mixers(model: Model) -> list[Mixer]:
    """The self-attention of all layers of all stacks."""
    mixers = [block.mixers.get("self_attn") for model_stack in model.stacks() for block in model_stack.stack.blocks]
    return [mixer for mixer in mixers if isinstance(mixer, Mixer)]


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
        message = "the model's logits are not finite: its training diverged"
        raise RunFault(message, hint="choose an earlier checkpoint: --step N")
    difference = (logits - explicit).abs().max().item()
    if difference > TOLERANCE:
        message = f"explicit and fused attention differ by more than {TOLERANCE:g} in their logits"
        warnings.warn(f"{message}: what is shown may not be what the model computes", ResultWarning, stacklevel=2)
    return Capture(recorder.attention, recorder.hidden, difference)


def _logits(model: Model, inputs: Tokens, source: Tokens | None) -> Tensor:
    output: ForwardOutput = model(inputs, source)
    return model.logits(output.y, copies=output.copies)


def attention_kinds(model: Model) -> dict[str, SequencePair]:
    """Kinds of attention of the model by name, with the sequences of their queries and keys."""
    kinds: dict[str, SequencePair] = {}
    for model_stack in model.stacks():
        mixers = [block.mixers for block in model_stack.stack.blocks]
        if any("self_attn" in each and each["self_attn"].has_heads for each in mixers):
            kinds[model_stack.attention] = model_stack.rows, model_stack.rows
        if any("cross_attn" in each for each in mixers):
            kinds[model_stack.cross_attn] = model_stack.rows, model_stack.memory
    return kinds


def _register_hooks(model: Model, recorder: _Recorder) -> Iterator[RemovableHandle]:
    for model_stack in model.stacks():
        yield model_stack.stack.register_forward_pre_hook(partial(recorder.record_stack_input, model_stack.rows))
        for block in model_stack.stack.blocks:
            yield block.register_forward_hook(recorder.record_block_output)
            if block.self_attn is not None:
                record = partial(recorder.record_attention, model_stack.attention, (model_stack.rows, model_stack.rows))
                yield block.self_attn.part.register_forward_hook(record)
            if block.cross_attn is not None:
                record = partial(
                    recorder.record_attention, model_stack.cross_attn, (model_stack.rows, model_stack.memory)
                )
                yield block.cross_attn.part.register_forward_hook(record)


SATURATED = 0.99
"""A row whose largest weight is above this has almost no gradient."""


def normalize(p: Tensor) -> Tensor:
    """Rows scaled to sum 1; NaN if a row has negative weights or sums to 0."""
    total = p.sum(dim=-1, keepdim=True)
    fit = (p >= 0).all(dim=-1, keepdim=True) & (total > 0)
    return torch.where(fit, p / total, torch.nan)


@dataclass(frozen=True)
class SoftmaxStatistics:
    """One head, over the `rows` with two or more visible keys; NaN if there are none.

    Means over the rows: entropy in nats; normalised by ln(visible keys); largest weight; gradient: sum p(1 - p).
    saturated: share of rows whose largest weight is above SATURATED. logit_range: largest difference of two attention
    scores in a row; a lower bound if `underflow`, that is if a weight underflowed to 0. Entropies are of weights scaled
    to sum 1, NaN if a weight is negative or a row sums to 0.
    """

    kind: str
    layer: int
    head: int
    rows: int
    entropy: float
    normalised: float
    largest: float
    saturated: float
    gradient: float
    logit_range: float
    underflow: bool


def softmax_statistics(captures: Iterable[Capture]) -> list[SoftmaxStatistics]:
    """Statistics of every head of a model over the rows of all captures."""
    by_layer: dict[tuple[str, int], list[dict[str, Tensor]]] = {}
    for captured in captures:
        for attention in captured.attention:
            by_layer.setdefault((attention.kind, attention.layer), []).append(_measure_rows(attention))
    statistics = []
    for (kind, layer), measured in by_layer.items():
        rows = {name: torch.cat([rows[name] for rows in measured], dim=1) for name in measured[0]}
        statistics += [_summarize(kind, layer, head, rows) for head in range(len(rows["entropy"]))]
    return statistics


def _measure_rows(attention: CapturedAttention) -> dict[str, Tensor]:
    """Statistics (H, rows) of the rows of a layer with two or more visible keys."""
    weights, mask = attention.weights.cpu().double(), attention.mask.cpu()
    # Columns of no token are always visible.
    lead = torch.ones_like(weights[:, 0, :, : attention.lead], dtype=torch.bool)
    visible = torch.cat([lead, mask.expand(len(weights), -1, -1)], dim=-1)[:, None]  # (B, 1, L, lead + M)
    n_visible = visible.sum(dim=-1)
    p = torch.where(visible, weights, 0.0)
    entropy = torch.special.entr(normalize(p)).sum(dim=-1)
    scores = p.log()  # up to a constant; -inf where p underflowed to 0
    lowest = torch.where(p > 0, scores, torch.inf).amin(dim=-1)
    columns = {
        "entropy": entropy,
        "normalised": entropy / n_visible.double().log(),
        "largest": p.amax(dim=-1),
        "gradient": (p * (1 - p)).sum(dim=-1),
        "logit_range": scores.amax(dim=-1) - lowest,
        "underflow": (visible & (p == 0)).any(dim=-1),
    }
    several = n_visible[:, 0] > 1  # (B, L)
    return {name: column.transpose(0, 1)[:, several] for name, column in columns.items()}  # (B, H, L) -> (H, rows)


def _summarize(kind: str, layer: int, head: int, rows: dict[str, Tensor]) -> SoftmaxStatistics:
    of_head = {name: column[head] for name, column in rows.items()}
    of_head["saturated"] = (of_head["largest"] > SATURATED).double()
    averaged = ("entropy", "normalised", "largest", "saturated", "gradient")
    means = {name: of_head[name].mean().item() for name in averaged}
    n, underflow = len(of_head["entropy"]), bool(of_head["underflow"].any())
    logit_range = of_head["logit_range"].amax().item() if n else nan
    return SoftmaxStatistics(kind, layer, head, n, **means, logit_range=logit_range, underflow=underflow)

"""The logit of a predicted token as an exact sum over the parts of a decoder, with the scale of the final norm frozen.

The last hidden state of a pre-norm model is the sum of the stack's input and the outputs of all attention and
feed-forward layers; those of the latter are sums of memories m_i v_i and a bias. With the norm's scale frozen at this
hidden state the final norm and the output layer are linear, so each part has its own contribution. Source: Elhage et
al. 2021, "A mathematical framework for transformer circuits"; for memories Geva et al. 2022, arXiv:2203.14680.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from mini_tf.drawing.labels import label
from mini_tf.drawing.terminal import sentence, table
from mini_tf.generation.decoding import check_finite
from mini_tf.inspection import Picture, View
from mini_tf.inspection._memory_layers import MemoryIndex, memory_layers, recorded
from mini_tf.inspection._texts import untruncated_input
from mini_tf.nn.layers.feed_forward import FeedForward
from mini_tf.nn.layers.head import OutputLayer
from mini_tf.nn.layers.norm import frozen_norm
from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.model import Model
from mini_tf.nn.stack import Stack
from mini_tf.nn.tokens import Tokens
from mini_tf.papers.key_value_memories.layer_report import top_votes
from mini_tf.papers.key_value_memories.rows import excerpt
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained


class LayerMemories(NamedTuple):
    """The memories of a layer: coefficients (n,), and contributions (n,) to the logit."""

    coefficients: np.ndarray
    contributions: np.ndarray


@dataclass(frozen=True)
class LogitSplit:
    """Contributions to the logit of `token`, the most probable one; p: its probability.

    input: of the stack, which is the embedding. attention, cross: by layer; memories, bias: of the feed-forward layers.
    norm_bias: of the final norm.
    """

    token: int
    p: float
    logit: float
    input: float
    attention: dict[int, float]
    cross: dict[int, float]
    memories: dict[int, LayerMemories]
    bias: dict[int, float]
    norm_bias: float

    @property
    def contributions(self) -> list[float]:
        """Of all parts."""
        by_layer = (value for part in (self.attention, self.cross, self.bias) for value in part.values())
        memories = (float(value) for layer in self.memories.values() for value in layer.contributions)
        return [self.input, *by_layer, *memories, self.norm_bias]

    @property
    def sum(self) -> float:
        """Of all contributions; `logit` up to rounding if the model is a sum of these parts."""
        return math.fsum(self.contributions)

    @property
    def size(self) -> float:
        """Sum of the absolute contributions, by which rounding errors are judged."""
        return math.fsum(map(abs, self.contributions))


@dataclass
class _Parts:
    """Vectors (D,) at the last token of a text: the stack's input, outputs of mixers by name and layer, and the sum."""

    input: Tensor = field(default_factory=lambda: torch.empty(0))
    mixers: dict[str, list[Tensor]] = field(default_factory=lambda: {"self_attn": [], "cross_attn": []})
    memories: dict[int, tuple[FeedForward, Tensor]] = field(default_factory=dict)
    sum: Tensor = field(default_factory=lambda: torch.empty(0))

    def record_memories(self, layer: int, part: FeedForward, x: Tensor) -> None:
        self.memories[layer] = part, part.coefficients(x[0, -1])

    @contextmanager
    def recorded(self, stack: Stack) -> Iterator[None]:
        """Within this block a forward pass of one text sets all parts."""

        def set_input(part: nn.Module, inputs: tuple[Any, ...]) -> None:
            self.input = inputs[0][0, -1]

        def set_sum(part: nn.Module, inputs: tuple[Any, ...]) -> None:
            self.sum = inputs[0][0, -1]

        def add(name: str, part: nn.Module, inputs: tuple[Any, ...], output: ForwardOutput) -> None:
            self.mixers[name].append(output.y[0, -1])

        with ExitStack() as hooks:
            hooks.enter_context(recorded(stack, self.record_memories))
            hooks.enter_context(stack.register_forward_pre_hook(set_input))
            hooks.enter_context(stack.norm.register_forward_pre_hook(set_sum))
            for block in stack.blocks:
                for name, mixer in block.mixers.items():
                    hooks.enter_context(mixer.register_forward_hook(partial(add, name)))
            yield


def why_not(model: Model) -> str | None:
    """Why the logits of a model are no sum of its parts; None: they are, unless it adds more to the residual stream."""
    stack = model.stacks()[0].stack
    if model.needs_source or not stack.causal:
        return "only the next token of a decoder is split"
    steps = [
        step
        for block in stack.blocks
        for step in (block.self_attn, block.cross_attn, block.feed_forward)
        if step is not None
    ]
    if any(step.post for step in steps):
        return "with post-norm, norms between the layers rescale all parts before them"
    if not all(step.residual for step in steps):
        return "without residual connections it is no sum of the layers' outputs"
    if not (isinstance(model.head, OutputLayer) and model.head.is_linear):
        return "its output layer is not linear"
    return None


@torch.no_grad()
def split_logit(model: Model, tokens: Tokens) -> LogitSplit:
    """Split the logit of the most probable token after `tokens` (1, L). `why_not` must be None.

    Raises RunFault if the logits are not finite.
    """
    stack, parts = model.stacks()[0].stack, _Parts()
    with parts.recorded(stack):
        hidden = model(tokens).y[0, -1]
    logits = model.logits(hidden)
    check_finite(logits)
    token = logits.argmax(dim=-1, keepdim=True)
    linear, constant = frozen_norm(stack.norm, parts.sum)

    def contributions(vectors: Float[Tensor, "*at D"]) -> Float[Tensor, "*at"]:
        return model.logits(linear(vectors), candidates=token).squeeze(-1)

    attention, cross = (
        {n: float(contributions(y)) for n, y in enumerate(parts.mixers[name])} for name in ("self_attn", "cross_attn")
    )
    memories = {
        layer: LayerMemories(
            *(values.cpu().double().numpy() for values in (m, contributions(m[:, None] * part.values)))
        )
        for layer, (part, m) in parts.memories.items()
    }
    bias = {
        n: float(contributions(part.value_bias))
        for n, (part, _) in parts.memories.items()
        if part.value_bias is not None
    }
    norm_bias = 0.0 if constant is None else float(model.logits(constant, candidates=token))
    p, logit = (float(values[int(token)]) for values in (logits.cpu().double().softmax(dim=-1), logits))
    return LogitSplit(
        int(token), p, logit, float(contributions(parts.input)), attention, cross, memories, bias, norm_bias
    )


N_VOTES = 3
"""Tokens of each memory."""
ROUNDING = 1e-4
"""Largest difference of sum and logit, as a share of the absolute contributions."""


def split_view(trained: Trained, text: str, top: int) -> View:
    """All parts by layer, their sum beside the logit, and the `top` memories with the largest contributions.

    Raises UsageFault if the logit is no sum of parts.
    """
    model, objective = trained.model, trained.recipe.objective
    reason = why_not(model) if "tokens" in objective.PREDICTS else f"objective {objective.kind} predicts no tokens"
    if reason is not None:
        raise UsageFault(f"--text: the logit of {trained.folder.name} is not split: {reason}", hint="leave --text out")
    input = untruncated_input(trained, text).truncate(model.context)
    split = split_logit(model, Tokens(torch.tensor([input.ids], device=trained.setup.device)))
    if not abs(split.sum - split.logit) <= ROUNDING * split.size:
        reason = (
            f"its parts sum to {split.sum:.4f}, but it is {split.logit:.4f}: the model also adds other vectors to the"
            " residual stream"
        )
        raise UsageFault(f"--text: the logit of {trained.folder.name} is not split: {reason}", hint="leave --text out")
    shown, notes = excerpt(trained.tokenizer, input.ids, split.token), [input.note] if input.note else []
    result = {
        "text": input.text,
        "n_cut": input.n_cut,
        "token": shown.next,
        "p": split.p,
        "logit": split.logit,
        "sum": split.sum,
        "input": split.input,
        "layers": [_layer(split, layer) for layer in _numbers(split)],
        "norm_bias": split.norm_bias,
        "memories": list(_largest(trained, split, top)),
    }
    title = (
        f"{shown.shown()} is followed by {label(str(shown.next))} (p {split.p:.3f}), whose logit is a sum over all"
        " parts:"
    )
    embedded = model.stacks()[0].embedding is not None
    return View({"split": result, "notes": notes}, [partial(sentence, title), *_tables(split, result, embedded)], notes)


def _largest(trained: Trained, split: LogitSplit, top: int) -> Iterator[dict[str, Any]]:
    layers = memory_layers(trained.model.stacks()[0].stack, trained.folder.name) if split.memories else {}
    contributions = [
        (MemoryIndex(layer, number), float(coefficient), float(contribution))
        for layer, memories in split.memories.items()
        for number, (coefficient, contribution) in enumerate(zip(*memories, strict=True))
    ]
    for memory, coefficient, contribution in sorted(contributions, key=lambda row: (-abs(row[2]), row[0]))[:top]:
        votes = top_votes(trained.model, layers[memory.layer].values[memory.number], N_VOTES)
        pieces = trained.tokenizer.pieces([id for id, _ in votes])
        yield {
            "layer": memory.layer,
            "memory": memory.number,
            "coefficient": coefficient,
            "contribution": contribution,
            "votes": [{"token": piece, "p": p} for piece, (_, p) in zip(pieces, votes, strict=True)],
        }


def _numbers(split: LogitSplit) -> list[int]:
    return sorted({*split.attention, *split.cross, *split.memories})


def _layer(split: LogitSplit, layer: int) -> dict[str, Any]:
    memories = split.memories.get(layer)
    return {
        "layer": layer,
        "attention": split.attention.get(layer),
        "cross": split.cross.get(layer),
        "memories": None if memories is None else float(memories.contributions.sum()),
        "active": None if memories is None else int((memories.coefficients > 0).sum()),
        "bias": split.bias.get(layer),
    }


def _tables(split: LogitSplit, result: dict[str, Any], embedded: bool) -> Iterator[Picture]:
    """embedded: the input of the stack is the embedding."""
    layers, memories = result["layers"], result["memories"]
    shown = [
        name for name in ("attention", "cross", "memories", "bias") if any(row[name] is not None for row in layers)
    ]
    yield partial(table, ["layer", *shown], [[str(row["layer"]), *(row[name] for name in shown)] for row in layers])
    rest = f"{'Embedding' if embedded else 'Input'} {split.input:.3f}"
    rest += f", bias of the final norm {split.norm_bias:.3f}" if split.norm_bias else ""
    yield partial(sentence, f"{rest}. Sum of all parts {split.sum:.4f}, logit {split.logit:.4f}.")
    if memories:
        rows: list[list[str | float | None]] = []
        for row in memories:
            votes = "  ".join(label(vote["token"]) for vote in row["votes"])
            rows.append([f"{row['layer']}:{row['memory']}", row["contribution"], row["coefficient"], votes])
        yield partial(sentence, "")
        yield partial(table, ["memory", "contribution", "coefficient", "votes"], rows)

"""What a model is made of and what it costs: parameters by part, floating-point operations a token or a pair, memory."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mini_tf.nn import state as states
from mini_tf.nn.layers.feed_forward import FeedForward
from mini_tf.nn.mixer import Mixer
from mini_tf.nn.model import Model
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kind_settings import OptimizerSettings
from mini_tf.training.flops import TRAINING_PASSES, flops_of
from mini_tf.training.optimizer import state_bytes

_WHOLE = (Mixer, FeedForward, PositionalEncoding)
"""Modules that are one part, whatever they hold."""


@dataclass(frozen=True)
class Part:
    """A module with parameters: its path in the model, what it is, and how many layers have it.

    A tensor that several modules share is counted by the first; the others name that one in `tied`.
    """

    name: str
    kind: str
    shapes: dict[str, tuple[int, ...]]
    parameters: int
    bytes: int
    tied: str | None = None
    times: int = 1


def parts_of(model: nn.Module) -> list[Part]:
    """Every parameter once, in the order of the modules; the counts add up to the model's own."""
    whole = [path for path, module in model.named_modules() if isinstance(module, _WHOLE)]
    owners: dict[str, dict[str, Tensor]] = {}
    for path, module in model.named_modules():
        owner = next((outer for outer in whole if path == outer or path.startswith(f"{outer}.")), path)
        for name, parameter in module.named_parameters(recurse=False):
            owners.setdefault(owner, {})[f"{path}.{name}"[len(owner) + 1 :]] = parameter
    counted: dict[int, str] = {}
    return [_part(path, model.get_submodule(path), tensors, counted) for path, tensors in owners.items()]


def _part(path: str, module: nn.Module, tensors: Mapping[str, Tensor], counted: dict[int, str]) -> Part:
    own = {name: p for name, p in tensors.items() if id(p) not in counted}
    tied = next((counted[id(p)] for p in tensors.values() if id(p) in counted), None)
    counted |= {id(p): path for p in own.values()}
    shapes = {name: tuple(p.shape) for name, p in own.items()}
    size, n_bytes = sum(p.numel() for p in own.values()), sum(p.numel() * p.element_size() for p in own.values())
    return Part(path, _kind(module), shapes, size, n_bytes, tied)


def _kind(module: nn.Module) -> str:
    """A mixer's or position's word in a recipe; else the class."""
    cls = type(module)
    return cls.__module__.rpartition(".")[2] if isinstance(module, Mixer | PositionalEncoding) else cls.__name__


def folded(parts: list[Part]) -> list[Part]:
    """Equal parts of several layers as one, with * for the layer's number and the sum of their parameters."""
    found: dict[Any, Part] = {}
    for part in parts:
        name = re.sub(r"\.\d+\.", ".*.", part.name)
        key = (name, part.kind, tuple(part.shapes.items()), part.tied)
        if (one := found.get(key)) is not None:
            size, n_bytes = one.parameters + part.parameters, one.bytes + part.bytes
            part = replace(one, name=name, parameters=size, bytes=n_bytes, times=one.times + part.times)
        found[key] = part
    return list(found.values())


@dataclass(frozen=True)
class ForwardFlops:
    """Floating-point operations, as `training.flops` counts them: a token in a text of `length` tokens, all of them scored; of a model of
    pairs a whole pair, whose source and target have as many tokens each."""

    length: int
    per: Literal["token", "pair"]
    stack: float
    scores: float

    @property
    def forward(self) -> float:
        return self.stack + self.scores

    @property
    def training(self) -> float:
        return TRAINING_PASSES * self.forward


@torch.enable_grad()  # without gradients torch's counter cannot follow views of parameters
def forward_flops(model: Model) -> ForwardFlops:
    """Measured over one pass of a text, or a pair, as long as the context, on the CPU."""
    pairs = model.needs_source
    inputs = _blank(model, model.context)
    source = inputs if pairs else None
    stack = flops_of(lambda: model(inputs, source))
    hidden = model(inputs, source).y
    scores = flops_of(lambda: model.logits(hidden))
    many = 1 if pairs else model.context
    return ForwardFlops(model.context, "pair" if pairs else "token", stack / many, scores / many)


def _blank(model: Model, length: int) -> Tokens:
    return Tokens(torch.zeros(1, length, dtype=torch.long, device=next(model.parameters()).device))


@dataclass(frozen=True)
class MemoryUse:
    """Bytes. training: weights, gradients and moments, without activations. state: what is remembered of a text as long as the
    context (of a pair: of the target, and of a source as long), and of its last token; None for a model that reads both sides of a
    text, which remembers nothing."""

    weights: int
    training: int
    state: int | None
    state_per_token: int | None


@torch.inference_mode()
def memory_of(model: Model, optimizer: OptimizerSettings) -> MemoryUse:
    """What the model can go on from is a state, and what it keeps of a source."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    gradients = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    whole = _state_bytes(model, model.context) if model.stacks()[0].stack.causal else None
    last = None if whole is None else whole - (_state_bytes(model, model.context - 1) if model.context > 1 else 0)
    return MemoryUse(weights, weights + gradients + state_bytes(optimizer, model), whole, last)


def _state_bytes(model: Model, length: int) -> int:
    memory = model.encode(_blank(model, model.context)) if model.needs_source else None
    mixed = model(_blank(model, length), memory, state=model.start(1))
    assert mixed.state is not None
    kept = () if memory is None else memory.layers or ()
    return states.nbytes(model.trim(mixed.state)) + sum(map(states.nbytes, kept))

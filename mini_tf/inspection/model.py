"""Parameters by module, FLOPs per token or pair, and memory of a model."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mini_tf.drawing.terminal import line, sentence, table
from mini_tf.inspection import ModelViewSettings, Output, Picture, View
from mini_tf.nn import state as states
from mini_tf.nn.layers.feed_forward import FeedForward
from mini_tf.nn.mixer import ForwardOutput, Mixer
from mini_tf.nn.model import Model
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kind_settings import OptimizerSettings
from mini_tf.system.numbers import in_bytes, in_flop
from mini_tf.trained.opening import Trained
from mini_tf.training import flops
from mini_tf.training.optimizer import state_bytes

_WHOLE = (Mixer, FeedForward, PositionalEncoding)
"""Modules whose submodules are not listed."""


@dataclass(frozen=True)
class ModuleParameters:
    """Parameters of a module: its path, its kind or class, and the number of equal layers merged (`times`).

    A shared tensor is counted for the first module; the others have its path in `tied`.
    """

    name: str
    kind: str
    shapes: dict[str, tuple[int, ...]]
    parameters: int
    bytes: int
    tied: str | None = None
    times: int = 1


def module_parameters(model: nn.Module) -> list[ModuleParameters]:
    """Every parameter once, in the order of the modules; the counts sum to the model's."""
    whole = [path for path, module in model.named_modules() if isinstance(module, _WHOLE)]
    owners: dict[str, dict[str, Tensor]] = {}
    for path, module in model.named_modules():
        owner = next((outer for outer in whole if path == outer or path.startswith(f"{outer}.")), path)
        for name, parameter in module.named_parameters(recurse=False):
            owners.setdefault(owner, {})[f"{path}.{name}"[len(owner) + 1 :]] = parameter
    counted: dict[int, str] = {}
    return [_count_once(path, model.get_submodule(path), tensors, counted) for path, tensors in owners.items()]


def _count_once(
    path: str, module: nn.Module, tensors: Mapping[str, Tensor], counted: dict[int, str]
) -> ModuleParameters:
    own = {name: p for name, p in tensors.items() if id(p) not in counted}
    tied = next((counted[id(p)] for p in tensors.values() if id(p) in counted), None)
    counted |= {id(p): path for p in own.values()}
    shapes = {name: tuple(p.shape) for name, p in own.items()}
    size, n_bytes = sum(p.numel() for p in own.values()), sum(p.numel() * p.element_size() for p in own.values())
    return ModuleParameters(path, _kind(module), shapes, size, n_bytes, tied)


def _kind(module: nn.Module) -> str:
    """The kind of a mixer or positional encoding, else the class name."""
    cls = type(module)
    return cls.__module__.rpartition(".")[2] if isinstance(module, Mixer | PositionalEncoding) else cls.__name__


def merge_layers(parts: list[ModuleParameters]) -> list[ModuleParameters]:
    """Merge equal modules of several layers: * for the layer index, and the sum of their parameters."""
    found: dict[Any, ModuleParameters] = {}
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
    """FLOPs as in `training.flops`: per token of a text of `length` tokens, or per pair of `length` tokens each.

    stack: FLOPs up to the hidden states; logits: FLOPs of the output layer for all tokens.
    """

    length: int
    per: Literal["token", "pair"]
    stack: float
    logits: float

    @property
    def forward(self) -> float:
        return self.stack + self.logits

    @property
    def training(self) -> float:
        return flops.TRAINING_PASSES * self.forward


@torch.enable_grad()  # without gradients, a module may keep results, which are zeros here
def forward_flops(model: Model) -> ForwardFlops:
    """Count the FLOPs of one forward pass on a text, or pair, of context length."""
    pairs = model.needs_source
    inputs = _zero_ids(model, model.context)
    source = inputs if pairs else None
    outputs: list[ForwardOutput] = []
    stack = flops.forward_flops(lambda: outputs.append(model(inputs, source)), inputs.ids.device)
    logits = flops.forward_flops(lambda: model.logits(outputs[0].y, copies=outputs[0].copies), inputs.ids.device)
    n = 1 if pairs else model.context
    return ForwardFlops(model.context, "pair" if pairs else "token", stack / n, logits / n)


def _zero_ids(model: Model, length: int) -> Tokens:
    return Tokens(torch.zeros(1, length, dtype=torch.long, device=next(model.parameters()).device))


@dataclass(frozen=True)
class MemoryUse:
    """Bytes. training: weights, gradients and optimizer state, without activations.

    state: KV cache or recurrent state of a text of context length (encoder-decoder: of a target and a source);
    state_per_token: its growth by the last token. None for a bidirectional model.
    """

    weights: int
    training: int
    state: int | None
    state_per_token: int | None


@torch.inference_mode()
def memory_of(model: Model, optimizer: OptimizerSettings) -> MemoryUse:
    """Memory for weights, training and the state of generation."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    gradients = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    whole = _state_bytes(model, model.context) if model.stacks()[0].stack.causal else None
    last = None if whole is None else whole - (_state_bytes(model, model.context - 1) if model.context > 1 else 0)
    return MemoryUse(weights, weights + gradients + state_bytes(optimizer, model), whole, last)


def _state_bytes(model: Model, length: int) -> int:
    memory = model.encode(_zero_ids(model, model.context)) if model.needs_source else None
    mixed = model(_zero_ids(model, length), memory, state=model.start(1))
    assert mixed.state is not None
    source_states = () if memory is None else memory.states
    return states.nbytes(model.trim(mixed.state)) + sum(map(states.nbytes, source_states))


class Settings(ModelViewSettings):
    """Show parameters by module, FLOPs per token or pair, and memory."""

    EXAMPLES = ("minitf inspect model last",)
    FILES = ()

    device: str = "cpu"
    """The numbers are the same everywhere, and counted there."""

    def view(self, trained: Trained, output: Output) -> View:
        settings = trained.recipe.model
        parts = module_parameters(trained.model)
        total = sum(part.parameters for part in parts)
        work, memory = forward_flops(trained.model), memory_of(trained.model, trained.recipe.optimizer)
        facts = {
            "kind": settings.kind,
            "attention": [mixer.kind for mixer in getattr(settings, "attention", ())],
            "positions": getattr(getattr(settings, "positions", None), "kind", None),
            "context": trained.model.context,
            "vocabulary": trained.tokenizer.vocabulary.size,
            **(_of_source(trained) if settings.SOURCE else {}),
        }
        result = {
            **facts,
            "parameters": total,
            "parts": [_record(part, total) for part in parts],
            "flops": {
                "length": work.length,
                "per": work.per,
                "forward": work.forward,
                "of_which_scores": work.logits,
                "training": work.training,
            },
            "memory": vars(memory),
        }
        metrics = {"parameters": total, f"flops_per_{work.per}": work.forward}
        pictures = [
            *_tables(facts, merge_layers(parts), total),
            *(partial(line, text, whole=True) for text in _cost(work, memory)),
        ]
        return View(result, pictures, metrics=metrics)


def _of_source(trained: Trained) -> dict[str, Any]:
    """The encoder's facts."""
    settings: Any = trained.recipe.model
    side = settings.source_stack
    return {
        "encoder": {"attention": [mixer.kind for mixer in side.attention], "positions": side.positions.kind},
        "cross_attention": None if settings.cross_attention is None else settings.cross_attention.kind,
        "source_vocabulary": trained.source_tokenizer.vocabulary.size,
    }


def _record(part: ModuleParameters, total: int) -> dict[str, Any]:
    fields = {name: value for name, value in vars(part).items() if name != "times"}
    return fields | {"share": part.parameters / total}


def _tables(facts: dict[str, Any], parts: list[ModuleParameters], total: int) -> Iterator[Picture]:
    attention = " ".join(facts["attention"])
    lines = [f"{facts['kind']} · attention {attention} · positions {facts['positions']}"]
    if (encoder := facts.get("encoder")) is not None:
        lines[0] += f" · cross {facts['cross_attention'] or 'none'}"
        lines.append(f"encoder · attention {' '.join(encoder['attention'])} · positions {encoder['positions']}")
        lines.append(f"source vocabulary {facts['source_vocabulary']:,}")
    lines += [f"context {facts['context']:,} tokens · vocabulary {facts['vocabulary']:,}", ""]
    yield from (partial(sentence, text) for text in lines)
    rows = []
    for part in parts:
        stack = "decoder." if "encoder" in facts else ""
        name = re.sub(r"^stack\.", stack, part.name).removesuffix(".part")
        shapes = ["×".join(map(str, shape)) for shape in part.shapes.values()]
        shapes += ["tied"] if part.tied else []
        what = f"{part.times} × {part.kind}" if part.times > 1 else part.kind
        rows.append([name, what, f"{part.parameters:,}", f"{part.parameters / total:.1%}", " ".join(shapes)])
    rows.append(["total", "", f"{total:,}", "100.0%", ""])
    headers = ["module", "type", "parameters", "share", "shapes"]
    yield partial(table, headers, rows)


def _cost(work: ForwardFlops, memory: MemoryUse) -> list[str]:
    texts = "texts" if work.per == "token" else "sources and targets"
    lines = [
        "",
        f"compute   {in_flop(work.forward)} per {work.per} forward, {in_flop(work.logits)} of it in the output layer",
        f"          {in_flop(work.training)} per {work.per} in training, for {texts} of {work.length:,} tokens",
        f"memory    {in_bytes(memory.weights)} for weights; training needs {in_bytes(memory.training)} for weights,",
        "          gradients and optimizer state, plus activations",
    ]
    if memory.state is None:
        return [*lines, "KV cache  none: attention is bidirectional"]
    grown = f"{in_bytes(memory.state_per_token)} per token" if memory.state_per_token else "constant"
    text = "for a text" if work.per == "token" else "for a source and a target"
    return [*lines, f"KV cache  {in_bytes(memory.state)} {text} of {work.length:,} tokens, {grown}"]

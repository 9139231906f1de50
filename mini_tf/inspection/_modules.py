"""Numbers of a model without a text: parameters by module, FLOPs, memory, and positional encodings.

Encodings of the embedding give position vectors, which are compared with each other; rotary encodings and attention
biases give curves over distance.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mini_tf.nn import state as states
from mini_tf.nn.layers.embedding import Embedding
from mini_tf.nn.layers.feed_forward import FeedForward
from mini_tf.nn.mixer import ForwardOutput, Mixer
from mini_tf.nn.model import Model
from mini_tf.nn.model_stack import ModelStack
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kind_settings import OptimizerSettings
from mini_tf.training import flops
from mini_tf.training.optimizer import state_bytes

_WHOLE = (Mixer, FeedForward, PositionalEncoding)
"""Modules whose submodules are not listed."""
MAX_MAP = 64
"""Maximum number of positions in the map; of more, evenly spaced ones are shown."""
MAX_KERNEL = 1024
"""Maximum number of positions in the kernel, from the first on."""


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
    counted_now = {name: p for name, p in tensors.items() if id(p) not in counted}
    tied = next((counted[id(p)] for p in tensors.values() if id(p) in counted), None)
    counted |= {id(p): path for p in counted_now.values()}
    shapes = {name: tuple(p.shape) for name, p in counted_now.items()}
    size = sum(p.numel() for p in counted_now.values())
    n_bytes = sum(p.numel() * p.element_size() for p in counted_now.values())
    return ModuleParameters(path, _kind(module), shapes, size, n_bytes, tied)


def _kind(module: nn.Module) -> str:
    """The kind of a mixer or positional encoding, else the class name."""
    cls = type(module)
    return cls.__module__.rpartition(".")[2] if isinstance(module, Mixer | PositionalEncoding) else cls.__name__


def merge_layers(parts: list[ModuleParameters]) -> list[ModuleParameters]:
    """Merge equal modules of several layers: * for the layer index, and the sum of their parameters."""
    merged: dict[Any, ModuleParameters] = {}
    for part in parts:
        name = re.sub(r"\.\d+\.", ".*.", part.name)
        key = (name, part.kind, tuple(part.shapes.items()), part.tied)
        if (earlier := merged.get(key)) is not None:
            size, n_bytes = earlier.parameters + part.parameters, earlier.bytes + part.bytes
            part = replace(earlier, name=name, parameters=size, bytes=n_bytes, times=earlier.times + part.times)
        merged[key] = part
    return list(merged.values())


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
    source_states = () if memory is None else memory.states()
    return states.nbytes(model.trim(mixed.state)) + sum(map(states.nbytes, source_states))


@dataclass(frozen=True, eq=False)
class PositionVectors:
    """`n_positions` position vectors: all rows of a learned table, else those of the context. table: its name, or None.

    similarity: cosine similarity of the vectors at `positions`, evenly spaced. kernel: softmax_j(p_i.p_j / sqrt(d))
    over the positions of the context, as mean per distance |i - j|.
    """

    n_positions: int
    positions: list[int]
    similarity: Float[Tensor, "n n"]
    kernel: list[float]
    table: str | None


@dataclass(frozen=True)
class RotaryKernel:
    """kernel[d]: mean of cos(d * theta) over the frequencies theta: the attention score of equal vectors at distance d.

    The vectors have norm 1, spread evenly over the frequencies. wavelengths: of each frequency, in tokens.
    """

    kernel: list[float]
    wavelengths: list[float]


@dataclass(frozen=True, eq=False)
class PositionAnalysis:
    """biases: attention bias of each head by distance, if it depends only on distance. All may be empty."""

    context: int
    vectors: PositionVectors | None = None
    rotary: RotaryKernel | None = None
    biases: list[list[float]] = field(default_factory=list)


@runtime_checkable
class HasFrequencies(Protocol):
    """A rotary encoding; frequencies: rotation of each pair of dimensions per token, in radians."""

    def frequencies(self, device: torch.device) -> Tensor: ...


class EncodingOf(NamedTuple):
    """The positional encoding of a stack: its path in the model, and the width of what it is added to."""

    path: str
    width: int


def encoding_of(model: Model, stack: ModelStack) -> EncodingOf | None:
    """That of the `Embedding` of the stack's input or memory, or its input itself; None if it has none."""
    modules = dict(model.named_modules())
    for path in stack.embedding_paths():
        module = modules.get(path)
        if isinstance(module, Embedding):
            return EncodingOf(f"{path}.position", module.tokens.embedding_dim)
        if isinstance(module, PositionalEncoding):  # output queries that are a function of the position
            return EncodingOf(path, model.d_model)
    return None


@torch.inference_mode()
def analyze_positions(model: Model, encoding: EncodingOf) -> PositionAnalysis:
    """Analyze a positional encoding up to the model's context."""
    position, device = model.get_submodule(encoding.path), next(model.parameters()).device
    assert isinstance(position, PositionalEncoding)
    zero = next(model.parameters()).new_zeros(1, 1, encoding.width)
    vectors = _vectors(encoding.path, position, model.context, zero) if "embed" in position.applies_to else None
    rotary = None
    if isinstance(position, HasFrequencies):
        frequencies = position.frequencies(torch.device("cpu"))  # (d / 2,)
        kernel = (torch.arange(model.context)[:, None] * frequencies).cos().mean(dim=1)
        rotary = RotaryKernel(kernel.tolist(), (2 * torch.pi / frequencies).tolist())
    distance_only = "bias" in position.applies_to and position.distance_only  # else it depends on queries and keys
    biases = position.bias(torch.arange(model.context, device=device)[None]) if distance_only else None
    by_head = [] if biases is None else biases[0].cpu().double().add(0.0).tolist()  # no -0
    return PositionAnalysis(model.context, vectors, rotary, by_head)


def _vectors(name: str, position: PositionalEncoding, context: int, zero: Float[Tensor, "1 1 D"]) -> PositionVectors:
    tables = [(path, part) for path, part in position.named_modules() if isinstance(part, nn.Embedding)]
    n_positions = max((part.num_embeddings for _, part in tables), default=context)
    # The encoding of a zero embedding is the position vector, also if it is concatenated and projected.
    p = position.embed(zero.repeat(1, n_positions, 1), TokenPositions(n_positions))[0].cpu().double()
    step = -(-n_positions // MAX_MAP)
    positions = list(range(0, n_positions, step))
    units = F.normalize(p[positions], dim=-1)
    first = p[: min(context, MAX_KERNEL)]
    weights = (first @ first.T / first.shape[1] ** 0.5).softmax(dim=-1)
    table = f"{name}.{tables[0][0]}.weight" if tables else None
    kernel = [torch.cat([weights.diagonal(d), weights.diagonal(-d)]).mean().item() for d in range(len(weights))]
    return PositionVectors(n_positions, positions, units @ units.T, kernel, table)

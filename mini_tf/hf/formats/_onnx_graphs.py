"""The graphs of an ONNX export: a model as functions from tensors to tensors, with names and sizes that may vary.

An encoder or a model of a task is one graph, from token ids and mask to outputs. A decoder's graph also has the state
of earlier tokens as input and output: the KV cache, or whatever the mixers keep. An encoder-decoder has two graphs:
that of the encoder computes what cross-attention needs of a source, once, and the decoder's has it as an input. Names
are those of Hugging Face's exports where these have such tensors.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch
from mini_tf.nn.model import Model
from mini_tf.nn.state import State
from mini_tf.nn.token_cache import AXES, SourceMemory
from mini_tf.nn.token_positions import POSITIONS_KEY, TokenPositions
from mini_tf.nn.tokens import Tokens

IDS, MASK, TYPES, LOGITS = "input_ids", "attention_mask", "token_type_ids", "logits"
SOURCE_MASK = "encoder_attention_mask"
PAST, PRESENT, SOURCE = "past_key_values", "present", "encoder"
BATCH, LENGTH, CACHED, SOURCE_LENGTH = "batch", "length", "past_length", "source_length"
TOTAL = f"{CACHED} + {LENGTH}"
_WORDS = {"k": "key", "v": "value"}

Axes = dict[int, str]
"""Sizes of a tensor that may vary, by axis."""


class Graph(NamedTuple):
    """A function that is written as `file`. example: inputs by name, in the order of the arguments of `module`."""

    file: str
    module: nn.Module
    example: dict[str, Tensor]
    axes: dict[str, Axes]
    outputs: tuple[str, ...]

    def sized(self, sizes: Mapping[str, int], vocabulary_size: int) -> dict[str, Tensor]:
        """Inputs of other sizes, by the names of sizes: random ids, no padding, and zeros for what was computed."""
        sizes = {**sizes, TOTAL: sizes[CACHED] + sizes[LENGTH]}
        inputs = {}
        for name, tensor in self.example.items():
            shape = [
                sizes[self.axes[name][axis]] if axis in self.axes[name] else n for axis, n in enumerate(tensor.shape)
            ]
            inputs[name] = tensor.new_full(shape, 0 if name not in (MASK, SOURCE_MASK) else 1)
        inputs[IDS] = torch.randint(vocabulary_size, inputs[IDS].shape, generator=torch.Generator().manual_seed(0))
        return inputs


class WholeText(nn.Module):
    """Outputs of a text: logits of every token (B, L, V) or (B, L, C), or of the text (B, C), or its vector (B, D).

    task: that has `predict`, of a model of a task, else None; scale, mean: undo the standardization of numbers.
    """

    def __init__(self, model: Model, task: Any, by_token: bool, scale: float, mean: float) -> None:
        super().__init__()
        self.model, self.task, self.by_token, self.scale, self.mean = model, task, by_token, scale, mean

    def forward(self, *inputs: Tensor) -> tuple[Tensor]:
        ids, mask, *types = inputs
        return (self.outputs(Tokens(ids, TokenPositions.of_mask(mask), *types)),)

    def outputs(self, inputs: Tokens) -> Tensor:
        """Those of tokens at any positions."""
        if self.task is None:
            return self.model.logits(self.model(inputs).y)
        rows, length = inputs.ids.shape
        at = torch.arange(rows * length, device=inputs.ids.device) if self.by_token else None
        outputs: Tensor = self.task.predict(Batch(inputs, inputs.ids.new_empty(0), at))
        outputs = outputs.view(rows, length, -1) if self.by_token else outputs
        return outputs if (self.scale, self.mean) == (1.0, 0.0) else outputs * self.scale + self.mean


class Leaf(NamedTuple):
    """A tensor of a state: its path of keys, and the axis of tokens if it has one for each token."""

    path: tuple[str, ...]
    axis: int | None

    @property
    def name(self) -> str:
        """As in Hugging Face's exports: the number of the layer, then key or value."""
        return ".".join(_WORDS.get(key, key) for key in self.path if key not in ("layers", "self_attn"))


def leaves(state: State, path: tuple[str, ...] = ()) -> list[Leaf]:
    """The tensors of a state, without positions and counts, which follow from the mask."""
    state_leaves: list[Leaf] = []
    for key, value in state.items():
        if isinstance(value, dict) and key != POSITIONS_KEY:
            state_leaves += leaves(value, (*path, key))
        elif isinstance(value, Tensor):
            state_leaves.append(Leaf((*path, key), AXES[key] if POSITIONS_KEY in state else None))
    return state_leaves


class NextTokens(nn.Module):
    """Logits (B, L, V) of tokens that continue a text, and the state after them.

    source: names of the tensors of an encoded source, which follow those of the state.
    """

    def __init__(self, model: Model, source: Sequence[Leaf] = ()) -> None:
        super().__init__()
        self.model = model
        self.empty = {key: value for key, value in model.start(1).items() if key != "seen"}
        self.leaves, self.source = leaves(self.empty), tuple(source)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        ids, mask, *tensors = inputs
        past = tensors[: len(self.leaves)]
        positions = TokenPositions.of_mask(mask)
        n_cached = mask.shape[1] - ids.shape[1]
        cached, new = positions.slice(0, n_cached), positions.slice(n_cached, mask.shape[1])
        new_positions = TokenPositions(ids.shape[1], 0, new.segments, new.positions)
        state = self._state(self.empty, dict(zip((leaf.path for leaf in self.leaves), past, strict=True)), cached)
        source = self._memory(tensors[len(self.leaves) :]) if self.source else None
        mixed = self.model(Tokens(ids, new_positions), source, None, state)
        logits = self.model.logits(mixed.y, copies=mixed.copies)
        return (logits, *(_at(mixed.state or {}, leaf.path) for leaf in self.leaves))

    def start(self, rows: int) -> list[Tensor]:
        state = self.model.start(rows)
        return [_at(state, leaf.path) for leaf in self.leaves]

    def _state(
        self,
        empty: State,
        tensors: Mapping[tuple[str, ...], Tensor],
        cached: TokenPositions,
        path: tuple[str, ...] = (),
    ) -> State:
        """`empty` with these tensors in it."""
        state: State = {}
        for key, value in empty.items():
            here = (*path, key)
            if key == POSITIONS_KEY:
                state[key] = {"start": 0, "segments": cached.segments, "positions": cached.positions}
            elif isinstance(value, dict):
                state[key] = self._state(value, tensors, cached, here)
            else:
                state[key] = tensors.get(here, value)
        return state

    def _memory(self, tensors: Sequence[Tensor]) -> SourceMemory:
        """The encoded source: its mask, then the tensors of its layers and of copy attention."""
        mask, *parts = tensors
        return memory_of(dict(zip((leaf.path for leaf in self.source), parts, strict=True)), mask)


def _at(state: State, path: Sequence[str]) -> Tensor:
    for key in path:
        state = state[key]
    return state  # type: ignore[return-value]


def memory_of(tensors: Mapping[tuple[str, ...], Tensor], mask: Tensor) -> SourceMemory:
    """An encoded source of its tensors: (layer, key) of the layers, ("copy", key) of copy attention."""
    layers: dict[str, State] = {}
    for (layer, key), tensor in tensors.items():
        layers.setdefault(layer, {})[key] = tensor
    copy = layers.pop("copy", None)
    return SourceMemory([*layers.values()] or None, TokenPositions.of_mask(mask), copy)


class SourceEncoder(nn.Module):
    """What the decoder needs of a source: for each cross-attention the keys and values, or what its mixer keeps."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def parts(self, ids: Tensor, mask: Tensor) -> dict[tuple[str, str], Tensor]:
        memory = self.model.encode(Tokens(ids, TokenPositions.of_mask(mask)))
        named = [*((str(n), layer) for n, layer in enumerate(memory.layers or []))]
        named += [] if memory.copy is None else [("copy", memory.copy)]
        return {(layer, key): tensor for layer, state in named for key, tensor in state.items()}

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        parts = self.parts(*inputs).values()
        # The ids that copy attention keeps: torch 2.10 would leave out an input that is an output.
        return tuple(part.clone() if any(part is tensor for tensor in inputs) else part for part in parts)


ROWS, TOKENS, PAST_TOKENS, SOURCE_TOKENS = 3, 5, 4, 6
"""Sizes of the examples, all different, so that no two of them can be taken for one."""


def whole_text(model: Model, task: nn.Module, by_token: bool, scale: float, mean: float) -> list[Graph]:
    """The graph of an encoder or of a model of a task."""
    module = WholeText(model, task if hasattr(task, "predict") else None, by_token, scale, mean)
    example = _ids_and_mask(TOKENS)
    if model.n_types > 1:
        example[TYPES] = torch.zeros(ROWS, TOKENS, dtype=torch.long)
    axes: dict[str, Axes] = {name: {0: BATCH, 1: LENGTH} for name in example}
    return [Graph("model.onnx", module.eval(), example, axes, (LOGITS,))]


def decoder(model: Model) -> list[Graph]:
    return [_decoder_graph("model.onnx", NextTokens(model))]


@torch.no_grad()
def encoder_decoder(model: Model) -> list[Graph]:
    encoder = SourceEncoder(model)
    example = _ids_and_mask(SOURCE_TOKENS)
    parts = encoder.parts(*example.values())
    source = [Leaf(path, None) for path in parts]
    names = tuple(f"{SOURCE}.{leaf.name}" for leaf in source)
    axes: dict[str, Axes] = {name: {0: BATCH, 1: SOURCE_LENGTH} for name in example}
    first = Graph("encoder_model.onnx", encoder.eval(), example, axes, names)
    of_source = {SOURCE_MASK: example[MASK], **dict(zip(names, parts.values(), strict=True))}
    return [first, _decoder_graph("decoder_model.onnx", NextTokens(model, source), of_source)]


def _ids_and_mask(length: int) -> dict[str, Tensor]:
    ids = torch.zeros(ROWS, length, dtype=torch.long)
    return {IDS: ids, MASK: torch.ones_like(ids)}


def _decoder_graph(file: str, module: NextTokens, source: Mapping[str, Tensor] = MappingProxyType({})) -> Graph:
    past = {f"{PAST}.{leaf.name}": _grown(_at(module.empty, leaf.path), leaf.axis) for leaf in module.leaves}
    example = {
        IDS: torch.zeros(ROWS, TOKENS, dtype=torch.long),
        MASK: torch.ones(ROWS, PAST_TOKENS + TOKENS, dtype=torch.long),
        **past,
        **source,
    }
    axes: dict[str, Axes] = {IDS: {0: BATCH, 1: LENGTH}, MASK: {0: BATCH, 1: TOTAL}}
    for name, leaf in zip(past, module.leaves, strict=True):
        axes[name] = {0: BATCH} | ({} if leaf.axis is None else {leaf.axis: CACHED})
    for name, tensor in source.items():
        axes[name] = {0: BATCH} | {axis: SOURCE_LENGTH for axis, n in enumerate(tensor.shape) if n == SOURCE_TOKENS}
    outputs = (LOGITS, *(f"{PRESENT}.{leaf.name}" for leaf in module.leaves))
    return Graph(file, module.eval(), example, axes, outputs)


def _grown(empty: Tensor, axis: int | None) -> Tensor:
    shape: list[Any] = [ROWS, *empty.shape[1:]]
    if axis is not None:
        shape[axis] = PAST_TOKENS
    return torch.zeros(shape, dtype=empty.dtype)

"""Fast decoding: the logits of the model's own forward pass for one token per row, several times faster.

A decoding step of a small model is mostly overhead: modules, positions and caches that grow by copying cost several
times as much as the matrix products. Here keys and values are written into preallocated tensors, positions are computed
once for all layers, and the residual sum is part of a matrix product. Embedding, activation, positions and head are the
model's own; norms and the attention of one query (fast_attention.py) are reimplemented; small models on a CPU are
computed in numpy (array_stack.py). `FastDecoder.fits` checks whether a model is supported. Prefill, and all other
models, use the model's `forward`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mini_tf.generation.array_stack import ArrayStack
from mini_tf.generation.fast_attention import (
    Cache,
    FixedKVCache,
    KVCache,
    Position,
    RecurrentStep,
    SoftmaxStep,
    UnitStep,
)
from mini_tf.generation.position_cache import FixedPositions, PositionCache
from mini_tf.nn.block import Block, ResidualStep
from mini_tf.nn.layers.embedding import Embedding
from mini_tf.nn.layers.feed_forward import FeedForward, activate
from mini_tf.nn.layers.kernels import Dropout
from mini_tf.nn.layers.norm import fast_norm
from mini_tf.nn.mixer import FastDecoding, Mixer, RecurrentAttention, SoftmaxAttention
from mini_tf.nn.model import Model, OneStack
from mini_tf.nn.state import State, reorder
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens


class FastDecoder:
    """Continues from the `state` of a prefill of sequences of these `lengths`, left-padded to the longest."""

    @staticmethod
    def fits(model: Model) -> bool:
        """Whether the model is in eval mode, and it, its mixers and its positional encoding declare support."""
        simple = model.fast_decoding()
        if simple is None or model.training:
            return False
        position = simple.embedding.position
        if not (position.distance_only and position.orthogonal) or position.of_layer(0) is not position:
            return False
        return all(_is_fast(block) for block in simple.stack.blocks)

    def __init__(self, whole: Model, state: State, lengths: Sequence[int]) -> None:
        model = whole.fast_decoding()
        assert model is not None
        self.model, self.n = model, max(lengths)
        self.network = FastNetwork(model, ArrayStack if ArrayStack.fits(model, len(lengths)) else TorchStack)
        device, has_kv_cache = self.network.weight.device, self.network.stack.has_kv_cache
        self.last_ids: Tensor | None = state.get("before")
        pads = [self.n - length for length in lengths]
        self.pads = torch.tensor(pads, device=device) if any(pads) else None
        states = [state["layers"][str(i)]["self_attn"] for i in range(len(has_kv_cache))]
        cached = [*compress(states, has_kv_cache)]
        self.kv_cache = KVCache(cached, self.n) if cached else None
        self.states = {i: dict(states[i]) for i, has_cache in enumerate(has_kv_cache) if not has_cache}
        self.positions = PositionCache(
            model.embedding.position, model.settings.attention_dims(), self.network.weight, bool(cached)
        )

    def decode(self, ids: Tensor) -> Tensor:
        """Append `ids` (B,); logits (B, V) of the next token."""
        position = self.positions.at(self.n, len(ids), self.pads)
        x = self.network.embed(ids, self._token_positions, self.last_ids)
        if self.last_ids is not None:
            self.last_ids = torch.cat([self.last_ids, ids[:, None]], dim=1)[:, 1:]
        self.n += 1
        return self.network.logits(x, position, self.kv_cache, self.states)

    def _token_positions(self) -> TokenPositions:
        if self.pads is None:
            return TokenPositions(1, self.n)
        return TokenPositions(1, positions=(self.n - self.pads)[:, None])

    def select(self, rows: Tensor) -> None:
        """Row i becomes row `rows[i]`."""
        self.positions.reset()
        if self.kv_cache is not None:
            self.kv_cache.select(rows)
        rows = rows.to(self.network.weight.device)
        self.states = {i: reorder(state, rows) or {} for i, state in self.states.items()}
        self.pads, self.last_ids = (None if part is None else part[rows] for part in (self.pads, self.last_ids))


class FixedDecoder:
    """A `FastDecoder` whose steps all have the same shapes and addresses, so that a CUDA graph can repeat them.

    The number of tokens is a tensor, and a token attends to all `capacity` slots of the KV cache under a mask. On a
    CPU this would cost more; on a GPU some hundred slots take no longer than one. It has the shapes of `decoder`, and
    its tokens only by `load`.
    """

    def __init__(self, decoder: FastDecoder, rows: int, capacity: int) -> None:
        self._network, device = FastNetwork(decoder.model, TorchStack), decoder.network.weight.device
        self._n, self._pads = (torch.zeros(size, dtype=torch.long, device=device) for size in (1, rows))
        self._last_ids = None if decoder.last_ids is None else decoder.last_ids.clone()
        self._kv_cache = None if decoder.kv_cache is None else FixedKVCache(decoder.kv_cache, capacity)
        self._states = {i: {name: t.clone() for name, t in state.items()} for i, state in decoder.states.items()}
        self._positions = FixedPositions(decoder.positions, capacity)

    def load(self, decoder: FastDecoder) -> None:
        """Continue from the tokens of `decoder`."""
        self._n.fill_(decoder.n)
        self._pads.zero_() if decoder.pads is None else self._pads.copy_(decoder.pads)
        if self._last_ids is not None and decoder.last_ids is not None:
            self._last_ids.copy_(decoder.last_ids)
        if self._kv_cache is not None and decoder.kv_cache is not None:
            self._kv_cache.load(decoder.kv_cache, decoder.n)
        self._store(decoder.states)

    def decode(self, ids: Tensor) -> Tensor:
        """`FastDecoder.decode`; only what it does with tensors is repeated by a graph."""
        positions, last_ids = self._positions.at(self._n, self._pads), self._last_ids
        x = self._network.embed(ids, self._token_positions, last_ids)
        if last_ids is not None:
            last_ids.copy_(torch.cat([last_ids, ids[:, None]], dim=1)[:, 1:])
        states = {i: dict(state) for i, state in self._states.items()}
        logits = self._network.logits(x, positions, self._kv_cache, states)
        self._store(states)
        self._n.add_(1)
        return logits

    def _token_positions(self) -> TokenPositions:
        return TokenPositions(1, positions=(self._n - self._pads)[:, None])

    def _store(self, states: dict[int, dict[str, Tensor]]) -> None:
        for i, state in self._states.items():
            for name, tensor in state.items():
                if tensor is not states[i][name]:  # a step may have updated it in place
                    tensor.copy_(states[i][name])


class FastNetwork:
    """A model for one token per row, without its state. weight: of the token embedding; stack: all of its layers."""

    def __init__(self, model: OneStack, stack: "type[TorchStack | ArrayStack]") -> None:
        self._model, self.weight, self.stack = model, model.embedding.tokens.weight, stack(model)
        self._is_lookup = _is_lookup(model.embedding)

    def embed(self, ids: Tensor, token_positions: Callable[[], TokenPositions], last_ids: Tensor | None) -> Tensor:
        """Embeddings (B, D) of `ids` (B,); last_ids: of the tokens before them, if the embedding depends on them."""
        if self._is_lookup:
            return self.stack.embed(ids, token_positions)
        embedded: Tensor = self._model.embedding(Tokens(ids[:, None]), token_positions(), last_ids)[:, 0]
        return embedded

    def logits(self, x: Tensor, position: Any, kv_cache: Any, states: Mapping[int, State]) -> Tensor:
        """Logits (B, V) after embeddings (B, D). kv_cache: of the layers that have one; states: of others, updated."""
        return self.stack(x, position, kv_cache, states)


class TorchStack:
    """From token ids to embeddings, and from embeddings to logits. has_kv_cache: of each layer."""

    def __init__(self, model: OneStack) -> None:
        stack, like = model.stack, model.embedding.tokens.weight[0]
        self._model, self._embedding = model, model.embedding
        self._layers = [_Layer(block, like) for block in stack.blocks] * stack.n_passes
        self._norm = fast_norm(stack.norm, like)
        self.has_kv_cache = [layer.has_kv_cache for layer in self._layers]

    def embed(self, ids: Tensor, token_positions: Callable[[], TokenPositions]) -> Tensor:
        """Embeddings (B, D) of `ids` (B,), if they are only looked up and get their positions."""
        x, position = self._embedding.tokens.weight.index_select(0, ids), self._embedding.position
        return position.embed(x[:, None], token_positions())[:, 0] if "embed" in position.applies_to else x

    def __call__(
        self, x: Tensor, position: Position, kv_cache: KVCache | FixedKVCache | None, states: Mapping[int, State]
    ) -> Tensor:
        kv_caches: Iterator[Cache] = iter(() if kv_cache is None else kv_cache.at(position.n))  # type: ignore[arg-type]
        for i, layer in enumerate(self._layers):
            x = layer(x, position, next(kv_caches) if layer.has_kv_cache else states[i])
        return self._model.logits(self._norm(x))


class _Layer:
    """A block for one token per row: (B, D) -> (B, D)."""

    def __init__(self, block: Block, like: Tensor) -> None:
        self_attn, feed_forward, self._parallel = block.self_attn, block.feed_forward, block.parallel
        assert self_attn is not None
        mixer: FastDecoding = self_attn.part.fast_decoding()  # type: ignore[operator]
        self.has_kv_cache = isinstance(mixer, SoftmaxAttention)
        self._mix: Callable[[Tensor, Position, Any], Tensor]
        if isinstance(mixer, SoftmaxAttention | RecurrentAttention):
            self._mix = SoftmaxStep(mixer) if isinstance(mixer, SoftmaxAttention) else RecurrentStep(mixer)
            self._self_attn = _Residual(self_attn, like, mixer.projections.out)
        else:
            self._mix, self._self_attn = UnitStep(mixer), _Residual(self_attn, like)
        if feed_forward is None:
            self._feed_forward = None
        else:
            assert isinstance(feed_forward.part, FeedForward)
            self._feed_forward, up = _Residual(feed_forward, like, feed_forward.part.down), feed_forward.part.up
            self._activation, self._up, self._up_bias = feed_forward.part.activation, up.weight, up.bias

    def __call__(self, x: Tensor, position: Position, cache: Cache | State) -> Tensor:
        mixed = self._self_attn.output(x, self._mix(self._self_attn.input(x), position, cache))
        if self._feed_forward is None:
            return mixed
        hidden = self._feed_forward.input(x if self._parallel else mixed)
        return self._feed_forward.output(mixed, activate(self._activation, F.linear(hidden, self._up, self._up_bias)))


class _Residual:
    """The norm, residual sum and output layer (`last`, None = none) of a residual step, without dropout."""

    def __init__(self, step: ResidualStep, like: Tensor, last: nn.Linear | None = None) -> None:
        self._norm, self._post, self._residual = fast_norm(step.norm, like), step.post, step.residual
        self._last, self._transposed = last, None if last is None else last.weight.t()

    def input(self, x: Tensor) -> Tensor:
        """The normalized residual stream, for pre-norm."""
        return x if self._post else self._norm(x)

    def output(self, x: Tensor, y: Tensor) -> Tensor:
        """The residual stream x (B, D) plus `last` of y (B, ..)."""
        if self._last is None or self._transposed is None:
            x = x + y if self._residual else y
        elif not self._residual:
            x = F.linear(y, self._last.weight, self._last.bias)
        else:
            x = torch.addmm(x, y, self._transposed)
            x = x if self._last.bias is None else x + self._last.bias
        return self._norm(x) if self._post else x


def _is_fast(block: Block) -> bool:
    self_attn, feed_forward = block.self_attn, block.feed_forward
    fast = self_attn is not None and isinstance(self_attn.part, Mixer) and self_attn.part.fast_decoding() is not None
    return fast and block.cross_attn is None and (feed_forward is None or type(feed_forward.part) is FeedForward)


def _is_lookup(embedding: Embedding) -> bool:
    """Whether the embedding in eval mode is only a lookup of token embeddings, and their positions."""
    active = {name for name, part in embedding.named_children() if not isinstance(part, nn.Identity | Dropout)}
    return active == {"tokens", "position"} and embedding.scale == 1.0

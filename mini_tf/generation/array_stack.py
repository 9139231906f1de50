"""The layers of a small model in numpy, for one token per row on a CPU.

A step of a small model costs mostly what its operations cost beside their arithmetic, and those of numpy cost half of
torch's. Weights, keys and values share memory with torch's tensors; activations are torch's. The residual stream is
(D, B): numpy's BLAS multiplies some columns by a matrix several times faster than as many rows.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mini_tf.generation.fast_attention import KVCache
from mini_tf.generation.position_cache import StepPosition
from mini_tf.nn.attention import qk_norm_eps
from mini_tf.nn.block import Block, ResidualStep
from mini_tf.nn.layers.feed_forward import ACTIVATIONS, FeedForward, activate
from mini_tf.nn.layers.head import Head
from mini_tf.nn.layers.norm import RMSNorm
from mini_tf.nn.mixer import SoftmaxAttention
from mini_tf.nn.model import Model, OneStack
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions

Array = NDArray[Any]
Function = Callable[[Array], Array]
LARGEST_LAYER, MOST_PRODUCTS = 2**20, 3 * 2**19
"""Weights of a layer, and multiplications by them in a step, up to which numpy on one thread is as fast as torch on
two, or faster: at 128 wide, up to 8 rows; at 256, up to 2. Beyond, torch shares the arithmetic among threads.
"""
BLOCK = 2**13
"""Largest matrix that is multiplied at once: of more than 9,216 numbers OpenBLAS wakes threads, for longer than the
product takes, and they compete with torch's."""


class ArrayStack:
    """From token ids to embeddings, and from embeddings to logits. has_kv_cache: of each layer."""

    @staticmethod
    def fits(model: OneStack, rows: int) -> bool:
        """Whether all layers are supported, in single or double precision on a CPU, and small enough."""
        weight, blocks = model.embedding.tokens.weight, model.stack.blocks
        if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
            return False
        if any(hasattr(block, "reshard") for block in blocks):  # torch cannot free weights that an array shares
            return False
        largest = max(sum(part.numel() for part in block.parameters()) for block in blocks)
        small = largest <= LARGEST_LAYER and rows * largest <= MOST_PRODUCTS
        return small and _is_known(model.stack.norm) and all(map(_is_supported, blocks))

    def __init__(self, model: OneStack) -> None:
        stack, self._model = model.stack, model
        like = model.embedding.tokens.weight[0]
        self._layers = [_Layer(block, like) for block in stack.blocks] * stack.n_passes
        self._norm = _norm(stack.norm, like)
        self.has_kv_cache = [True] * len(self._layers)
        self._table, self._positions = _array(model.embedding.tokens.weight), model.embedding.position
        self._vectors = self._table[:0]  # of the positions
        self._head = _array_head(model)

    def embed(self, ids: Tensor, token_positions: Callable[[], TokenPositions]) -> Tensor:
        """Embeddings (B, D) of `ids` (B,), if they are only looked up and get their positions."""
        x = self._table[ids.numpy()]
        if "embed" in self._positions.applies_to:
            where = token_positions()
            if not self._positions.additive:
                return self._positions.embed(torch.from_numpy(x)[:, None], where)[:, 0]
            x += self._vectors_at(where.start if where.positions is None else where.positions[:, 0].numpy())
        return torch.from_numpy(x)

    def _vectors_at(self, index: int | Array) -> Array:
        """What the positional encoding adds at these positions: (D,) or (B, D)."""
        n, limit = int(np.max(index)) + 1, self._positions.max_positions
        if n > len(self._vectors):
            # Beyond the limit `embed` raises an error.
            positions = TokenPositions(n if limit is not None and n > limit else min(2 * n, limit or 2 * n))
            zeros = self._model.embedding.tokens.weight.new_zeros(1, positions.length, self._table.shape[1])
            self._vectors = _array(self._positions.embed(zeros, positions)[0])
        vectors: Array = self._vectors[index]
        return vectors

    def __call__(
        self, x: Tensor, position: StepPosition, kv_cache: KVCache | None, states: Mapping[int, State]
    ) -> Tensor:
        assert kv_cache is not None
        rotation, bias = (None if part is None else part.numpy() for part in position[1:])
        with np.errstate(all="ignore"):  # as torch: a model that diverged has logits that are not finite
            hidden = np.array(x.numpy().T, order="C")
            for layer, cache in zip(self._layers, kv_cache.arrays_at(position.n), strict=True):
                hidden = layer(hidden, _Token(position.n, rotation, bias, *cache))
            hidden = self._norm(hidden)
            if self._head is None:
                return self._model.logits(torch.from_numpy(hidden.T))
            return torch.from_numpy(np.ascontiguousarray(self._head(hidden).T))


class _Token(NamedTuple):
    """`StepPosition` in numpy, and all slots of a layer's KV cache: keys (B G, K, capacity), values (B G, capacity, V).

    n: number of tokens before this one.
    """

    n: int
    rotation: Array | None
    bias: Array | None
    keys: Array
    values: Array

    def append(self, key: Array, value: Array, window: int | None) -> tuple[Array, Array, Array | None]:
        """Keys, values and bias within the window, after a key (B, G, K) and a value (B, G V) were added."""
        n, keys, values = self.n, self.keys, self.values
        keys[:, :, n] = key.reshape(len(keys), -1)
        values[:, n] = value.reshape(len(values), -1)
        first = 0 if window is None else max(0, n - window)
        bias = None if self.bias is None else self.bias[..., first:]
        return keys[:, :, first : n + 1], values[:, first : n + 1], bias


class _Layer:
    """A block: (D, B) -> (D, B)."""

    def __init__(self, block: Block, like: Tensor) -> None:
        self_attn, feed_forward, self._parallel = block.self_attn, block.feed_forward, block.parallel
        assert self_attn is not None
        self._mix, self._self_attn = _Attention(self_attn.part.fast_decoding()), _Residual(self_attn, like)  # type: ignore[operator]
        self._feed_forward = None if feed_forward is None else _Residual(feed_forward, like)
        if feed_forward is not None:
            assert isinstance(feed_forward.part, FeedForward)
            self._up, self._down = _linear(feed_forward.part.up), _linear(feed_forward.part.down)
            self._activation = partial(_activate, feed_forward.part.activation)

    def __call__(self, x: Array, token: _Token) -> Array:
        mixed = self._self_attn.output(x, self._mix(self._self_attn.input(x), token))
        if self._feed_forward is None:
            return mixed
        y = self._up(self._feed_forward.input(x if self._parallel else mixed))
        return self._feed_forward.output(mixed, self._down(self._activation(y)))


class _Residual:
    """The norm and the residual sum of a residual step, without dropout."""

    def __init__(self, step: ResidualStep, like: Tensor) -> None:
        self._norm, self._post, self._residual = _norm(step.norm, like), step.post, step.residual

    def input(self, x: Array) -> Array:
        return x if self._post else self._norm(x)

    def output(self, x: Array, y: Array) -> Array:
        """y is overwritten."""
        if self._residual:
            y += x
        return self._norm(y) if self._post else y


class _Attention:
    """Output of softmax attention, (D, B); the R = H / G queries that share a key form one matrix."""

    def __init__(self, attention: SoftmaxAttention) -> None:
        projections, self._window = attention.projections, attention.window
        self._dims = projections.dims
        norm = projections.qk_norm
        self._qkv = _linear(projections.qkv)
        self._out = _linear(projections.out)
        self._n_qk, d_k = sum(projections.sizes[:2]), self._dims.d_k
        dtype = projections.qkv.weight.detach().numpy().dtype
        self._scale, mean = np.full(1, attention.scale, dtype), np.full((d_k, 1), 1 / d_k, dtype)
        self._norm = None if norm is None else _rms_norm(_array(norm), qk_norm_eps(norm.dtype), lambda x: x @ mean)

    def __call__(self, x: Array, token: _Token) -> Array:
        dims, rows = self._dims, x.shape[1]
        qkv = np.ascontiguousarray(self._qkv(x).T)
        heads = qkv[:, : self._n_qk].reshape(rows, -1, dims.d_k)  # (B, H + G, K)
        if self._norm is not None:
            heads = self._norm(heads)
        if token.rotation is not None:
            heads = heads @ token.rotation  # (B, H + G, K) @ (K, K) or (B, K, K)
        keys, values, bias = token.append(heads[:, dims.n_heads :], qkv[:, self._n_qk :], self._window)
        q = (heads[:, : dims.n_heads] * self._scale).reshape(len(keys), -1, dims.d_k)
        attended = _attend(q, keys, values, bias)  # (B G, R, V)
        return self._out(np.ascontiguousarray(attended.reshape(rows, -1).T))


def _attend(q: Array, keys: Array, values: Array, bias: Array | None) -> Array:
    """softmax(q (B G, R, K) keys (B G, K, n) + bias) values (B G, n, V): (B G, R, V)."""
    n, size = values.shape[1], max(1, BLOCK // max(q.shape[2], values.shape[2]))
    parts = [q @ keys[:, :, i : i + size] for i in range(0, n, size)]
    scores = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
    if bias is not None:
        scores += bias
    # torch's softmax wakes its threads for any size, which takes longer than the whole step where they are busy.
    scores -= np.maximum.reduce(scores, axis=2, keepdims=True)
    np.exp(scores, out=scores)
    attended: Array = scores[:, :, :size] @ values[:, :size]
    for i in range(size, n, size):
        attended += scores[:, :, i : i + size] @ values[:, i : i + size]
    attended /= np.add.reduce(scores, axis=2, keepdims=True)
    return attended


def _is_supported(block: Block) -> bool:
    """A block that the fast decoder supports."""
    steps = [step for step in (block.self_attn, block.feed_forward) if step is not None]
    assert block.self_attn is not None
    mixer: object = block.self_attn.part.fast_decoding()  # type: ignore[operator]
    softmax = isinstance(mixer, SoftmaxAttention) and mixer.persistent is None
    return softmax and all(_is_known(step.norm) for step in steps)


def _squared_relu(x: Array) -> Array:
    np.maximum(x, 0, out=x)
    x *= x
    return x


_EXACT: dict[str, Function] = {"relu": lambda x: np.maximum(x, 0, out=x), "relu2": _squared_relu}
"""Activations whose bits are torch's, in a quarter of its time for one row."""


def _activate(kind: str, x: Array) -> Array:
    """(n_inputs F, B) -> (F, B); x may be overwritten."""
    if kind in _EXACT:
        return _EXACT[kind](x)
    if ACTIVATIONS[kind].n_inputs > 1:
        return np.ascontiguousarray(activate(kind, torch.from_numpy(x.T)).numpy().T)
    # Of a tensor that is not contiguous torch computes GELU itself: oneDNN needs 5 us before it begins.
    folded = x.reshape(2, -1) if x.size % 2 == 0 else x.reshape(1, -1)
    activated: Array = activate(kind, torch.from_numpy(folded.T)).numpy().T
    return activated.reshape(x.shape)


def _array_head(model: OneStack) -> Function | None:
    """From hidden states (D, B) to logits (V, B), if they are one small product; else None."""
    head, is_usual = model.head, getattr(model.logits, "__func__", None) is Model.logits
    if not is_usual or type(head) is not Head or head.transform is not None:
        return None
    return _linear(head.linear) if head.linear.weight.numel() <= LARGEST_LAYER else None


def _linear(linear: nn.Linear) -> Function:
    """(D, B) -> (O, B), in blocks of rows of the weight."""
    weight, bias = _array(linear.weight), None if linear.bias is None else _array(linear.bias)[:, None]
    d_out, d_in = weight.shape
    fewest = -(-weight.size // BLOCK)
    blocks = weight.reshape(next((n for n in range(fewest, 4 * fewest) if d_out % n == 0), 1), -1, d_in)

    def apply(x: Array) -> Array:
        y: Array = (blocks @ x).reshape(d_out, -1)
        if bias is not None:
            y += bias
        return y

    return apply


def _array(tensor: Tensor) -> Array:
    return tensor.detach().numpy()


def _is_known(norm: nn.Module) -> bool:
    return type(norm) is nn.Identity or isinstance(norm, RMSNorm | nn.LayerNorm)


def _norm(norm: nn.Module, like: Tensor) -> Function:
    """A norm of columns (D, B). like: (D,), whose size and type the weight has where none is learned."""
    if type(norm) is nn.Identity:
        return lambda x: x
    assert isinstance(norm, RMSNorm | nn.LayerNorm)
    weight = _array(torch.ones_like(like) if norm.weight is None else norm.weight)[:, None]
    mean = np.full((1, len(weight)), 1 / len(weight), weight.dtype)
    scaled = _rms_norm(weight, norm.eps, lambda x: mean.dot(x))
    if isinstance(norm, RMSNorm):
        return scaled
    bias = None if norm.bias is None else _array(norm.bias)[:, None]

    def layer_norm(x: Array) -> Array:
        y = scaled(x - mean.dot(x))
        return y if bias is None else np.add(y, bias, out=y)

    return layer_norm


def _rms_norm(weight: Array, eps: float, mean: Function) -> Function:
    """x / sqrt(mean(x^2) + eps) * weight; mean: over an axis that it keeps."""
    least = np.full(1, eps, weight.dtype)

    def apply(x: Array) -> Array:
        scale = mean(x * x)
        scale += least
        y: Array = x / np.sqrt(scale, out=scale)
        y *= weight
        return y

    return apply

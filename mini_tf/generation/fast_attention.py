"""Mixers of one token per row in the fast decoder: attention with a KV cache or recurrent sums, and recurrences.

The KV cache of all layers is preallocated: a step writes its keys and values in place, without a copy. The views of
`KVCache` grow from step to step; those of `FixedKVCache` have all slots, and the next one is a tensor.
"""

from collections.abc import Iterable, Sequence
from itertools import starmap
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from mini_tf.generation.position_cache import FixedPosition, StepPosition
from mini_tf.nn.attention import qk_norm_eps
from mini_tf.nn.layers.norm import fast_rms_norm
from mini_tf.nn.mixer import FastProjections, RecurrentAttention, RecurrentUnit, SoftmaxAttention
from mini_tf.nn.state import State

EXTRA_CAPACITY = 64
"""Tokens allocated beyond the prompt; the capacity doubles when it is full."""


class LayerCache(NamedTuple):
    """Slots of the new key (B G, K) and value (B G, V) of a layer; keys (B G, K, n + 1), values (B G, n + 1, V)."""

    key: Tensor
    value: Tensor
    keys: Tensor
    values: Tensor

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values, after those of a token (B, G, K) and (B, G, V) were added."""
        self.key.copy_(key.reshape_as(self.key))
        self.value.copy_(value.reshape_as(self.value))
        return self.keys, self.values


class KVCache:
    """Keys and values of `n` tokens in each layer; slots of keys that a window has dropped are zero.

    Keys are stored transposed, (layers, B G, K, capacity), fastest for one query; values (layers, B G, capacity, V).
    """

    def __init__(self, states: Sequence[State], n: int) -> None:
        self.groups = states[0]["k"].shape[1]
        k, v = (
            [F.pad(state[name].flatten(0, 1), (0, 0, n - state[name].shape[2], EXTRA_CAPACITY)) for state in states]
            for name in "kv"
        )
        self.keys, self.values = torch.stack(k).transpose(2, 3).contiguous(), torch.stack(v)
        self._arrays: list[tuple[NDArray[Any], NDArray[Any]]] | None = None

    def at(self, n: int) -> Iterable[LayerCache]:
        """Views for a token that follows `n` others, layer by layer."""
        keys, values = self._with_slot(n)
        views = (keys.select(3, n), values.select(2, n), keys.narrow(3, 0, n + 1), values.narrow(2, 0, n + 1))
        return starmap(LayerCache, zip(*(view.unbind(0) for view in views), strict=True))

    def arrays_at(self, n: int) -> Sequence[tuple[NDArray[Any], NDArray[Any]]]:
        """On a CPU: keys (B G, K, capacity) and values (B G, capacity, V) of each layer, with a slot for token `n`.

        They share memory with this cache until the next `arrays_at` or `select`.
        """
        keys, values = self._with_slot(n)
        if self._arrays is None:
            self._arrays = [*zip(keys.numpy(), values.numpy(), strict=True)]
        return self._arrays

    def _with_slot(self, n: int) -> tuple[Tensor, Tensor]:
        """All keys and values, with room for token `n`."""
        if n == self.keys.shape[3]:
            self.keys, self.values = F.pad(self.keys, (0, n)), F.pad(self.values, (0, 0, 0, n))
            self._arrays = None
        return self.keys, self.values

    def select(self, rows: Tensor) -> None:
        """Row i becomes row `rows[i]`."""
        rows, self._arrays = rows.to(self.keys.device), None
        self.keys, self.values = (
            cache.unflatten(1, (-1, self.groups)).index_select(1, rows).flatten(1, 2)
            for cache in (self.keys, self.values)
        )


class FixedLayerCache(NamedTuple):
    """All keys (B G, K, capacity) and values (B G, capacity, V) of a layer; n (1,): how many slots are filled."""

    n: Tensor
    keys: Tensor
    values: Tensor

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """As `LayerCache.append`; the slots that are not filled are among them."""
        batch, groups, _ = key.shape
        self.keys.unflatten(0, (batch, groups)).index_copy_(3, self.n, key[..., None])
        by_group = value.unflatten(1, (groups, 1, -1))  # (B, G, 1, V)
        self.values.unflatten(0, (batch, groups)).index_copy_(2, self.n, by_group)
        return self.keys, self.values


class FixedKVCache:
    """`KVCache` for at most `capacity` tokens, at addresses that never change. Slots that are not filled are finite."""

    def __init__(self, cache: KVCache, capacity: int) -> None:
        layers, batch, d_k, _ = cache.keys.shape
        self._keys = cache.keys.new_zeros(layers, batch, d_k, capacity)
        self._values = cache.values.new_zeros(layers, batch, capacity, cache.values.shape[3])

    def load(self, cache: KVCache, n: int) -> None:
        """Copy the first `n` tokens of `cache`."""
        self._keys[..., :n].copy_(cache.keys[..., :n])
        self._values[..., :n, :].copy_(cache.values[..., :n, :])

    def at(self, n: Tensor) -> Iterable[FixedLayerCache]:
        """Views for a token that follows `n` (1,) others, layer by layer."""
        return (FixedLayerCache(n, *layer) for layer in zip(self._keys, self._values, strict=True))


Position = StepPosition | FixedPosition
Cache = LayerCache | FixedLayerCache


class _Heads:
    """Queries and keys (B, H + G, K), normalized and rotated, and values (B, G V)."""

    def __init__(self, projections: FastProjections) -> None:
        self.dims, weight = projections.dims, projections.qkv.weight
        self._qkv, self._bias = weight, projections.qkv.bias
        norm = projections.qk_norm
        self._norm = None if norm is None else fast_rms_norm(norm, qk_norm_eps(norm.dtype))
        self._sizes = [projections.sizes[0] + projections.sizes[1], projections.sizes[2]]

    def __call__(self, x: Tensor, position: Position) -> tuple[Tensor, Tensor]:
        q_and_k, v = self.unrotated(x)
        return self.rotated(q_and_k, position), v

    def unrotated(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q_and_k, v = F.linear(x, self._qkv, self._bias).split_with_sizes(self._sizes, dim=1)
        q_and_k = q_and_k.view(x.shape[0], -1, self.dims.d_k)
        return q_and_k if self._norm is None else self._norm(q_and_k), v

    def rotated(self, q_and_k: Tensor, position: Position) -> Tensor:
        if position.rotation is None:
            return q_and_k
        return q_and_k @ position.rotation  # (B, H + G, K) @ (K, K) or (B, K, K)


class SoftmaxStep:
    """Output of the attention heads, (B, H V), per row; the R = H / G queries that share a key form one matrix."""

    def __init__(self, attention: SoftmaxAttention) -> None:
        self._heads, self._scale, self._window = _Heads(attention.projections), attention.scale, attention.window
        self._no_bias = attention.projections.qkv.weight.new_zeros(1)
        self._persistent = None if attention.persistent is None else _Persistent(*attention.persistent, attention.scale)

    def __call__(self, x: Tensor, position: Position, cache: Cache) -> Tensor:
        dims = self._heads.dims
        unrotated, v = self._heads.unrotated(x)
        q, k = self._heads.rotated(unrotated, position).split_with_sizes([dims.n_heads, dims.n_kv_heads], dim=1)
        keys, values, bias = position.within(self._window, *cache.append(k, v))
        q = q.reshape(x.shape[0] * dims.n_kv_heads, -1, dims.d_k)
        if bias is None:
            scores = torch.baddbmm(self._no_bias, q, keys, beta=0, alpha=self._scale)
        else:
            scores = torch.baddbmm(bias, q, keys, alpha=self._scale)
        if self._persistent is not None:
            return self._persistent(unrotated[:, : dims.n_heads].reshape_as(q), scores, values).view(x.shape[0], -1)
        return torch.bmm(scores.softmax(dim=-1), values).view(x.shape[0], -1)  # (B G, R, n + 1) @ (B G, n + 1, V)


class _Persistent:
    """Attention to keys (G, N, K) and values (G, N, V) that are the same in all rows, beside those of the cache."""

    def __init__(self, keys: Tensor, values: Tensor, scale: float) -> None:
        self._keys, self._values = keys.mT * scale, values

    def __call__(self, q: Tensor, scores: Tensor, values: Tensor) -> Tensor:
        """q (B G, R, K), scores (B G, R, n) and values (B G, n, V) of the cache -> (B G, R, V)."""
        groups, n = len(self._keys), self._keys.shape[2]
        constant = _rows(torch.bmm(_groups(q, groups), self._keys), q.shape[1])  # (G, B R, K) @ (G, K, N)
        constant, scores = (
            torch.cat([constant, scores], dim=-1).softmax(dim=-1).split_with_sizes([n, scores.shape[2]], dim=-1)
        )
        return torch.baddbmm(_rows(torch.bmm(_groups(constant, groups), self._values), q.shape[1]), scores, values)


def _groups(t: Tensor, n: int) -> Tensor:
    """(B G, R, ..) -> (G, B R, ..)"""
    grouped: Tensor = t.unflatten(0, (-1, n))
    return grouped.transpose(0, 1).flatten(1, 2)


def _rows(t: Tensor, n_queries: int) -> Tensor:
    """The inverse of `_groups`: n_queries is R."""
    by_row: Tensor = t.unflatten(1, (-1, n_queries))
    return by_row.transpose(0, 1).flatten(0, 1)


class RecurrentStep:
    """Output of the attention heads, (B, H V), from a recurrent state, which is updated in place."""

    def __init__(self, attention: RecurrentAttention) -> None:
        self._heads, self._step = _Heads(attention.projections), attention.step

    def __call__(self, x: Tensor, position: Position, cache: State) -> Tensor:
        q_and_k, v = self._heads(x, position)
        attended, after = self._step(q_and_k, v.view(len(x), -1, self._heads.dims.d_v), cache)
        cache.update(after)
        return attended.flatten(1)


class UnitStep:
    """Output of a recurrence, (B, D); its state is updated in place."""

    def __init__(self, unit: RecurrentUnit) -> None:
        self._step = unit.step

    def __call__(self, x: Tensor, position: Position, cache: State) -> Tensor:
        y, after = self._step(x, cache)
        cache.update(after)
        return y

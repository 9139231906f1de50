"""KV cache of all layers, preallocated: a decoding step writes its keys and values in place, without a copy.

The views of `KVCache` grow from step to step; those of `FixedKVCache` have all slots, and the next one is a tensor.
"""

from collections.abc import Iterable, Sequence
from itertools import starmap
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

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

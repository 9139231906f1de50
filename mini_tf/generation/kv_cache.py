"""KV cache of all layers, preallocated: a decoding step writes its keys and values in place, without a copy."""

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mini_tf.nn.state import State

EXTRA_CAPACITY = 64
"""Tokens allocated beyond the prompt; the capacity doubles when it is full."""

LayerCache = tuple[Tensor, Tensor, Tensor, Tensor]
"""Views of a layer: slots of the new key (B G, K) and value (B G, V); keys (B G, K, n + 1), values (B G, n + 1, V)."""


class KVCache:
    """Keys and values of `n` tokens in each layer; slots of keys that a window has dropped are zero.

    Keys are stored transposed, (layers, B G, K, capacity), fastest for one query; values (layers, B G, capacity, V).
    """

    def __init__(self, states: Sequence[State], n: int) -> None:
        self._groups = states[0]["k"].shape[1]
        k, v = (
            [F.pad(state[name].flatten(0, 1), (0, 0, n - state[name].shape[2], EXTRA_CAPACITY)) for state in states]
            for name in "kv"
        )
        self._keys, self._values = torch.stack(k).transpose(2, 3).contiguous(), torch.stack(v)

    def at(self, n: int) -> Iterable[LayerCache]:
        """Views for a token that follows `n` others, layer by layer."""
        if n == self._keys.shape[3]:
            self._keys, self._values = F.pad(self._keys, (0, n)), F.pad(self._values, (0, 0, 0, n))
        keys, values = self._keys, self._values
        views = (keys.select(3, n), values.select(2, n), keys.narrow(3, 0, n + 1), values.narrow(2, 0, n + 1))
        return zip(*(view.unbind(0) for view in views), strict=True)

    def select(self, rows: Tensor) -> None:
        """Row i becomes row `rows[i]`."""
        rows = rows.to(self._keys.device)
        self._keys, self._values = (
            cache.unflatten(1, (-1, self._groups)).index_select(1, rows).flatten(1, 2)
            for cache in (self._keys, self._values)
        )

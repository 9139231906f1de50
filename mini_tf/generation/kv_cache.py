"""Keys and values of all layers, with room ahead: what one more token keeps is written in its place, and nothing is copied."""

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mini_tf.nn.state import State

ROOM = 64
"""Tokens that there is room for beside those that were read at first; it doubles when it is full."""

LayerCache = tuple[Tensor, Tensor, Tensor, Tensor]
"""Of one layer: where the token's own key (B G, K) and value (B G, V) go; all keys up to it (B G, K, n + 1), values (B G, n + 1, V)."""


class KVCache:
    """What the mixers of each layer kept of `n` tokens; a limited view has dropped the first of them.

    Keys (layers, B G, K, room) lie across, which is how one query reads them fastest; values (layers, B G, room, V).
    """

    def __init__(self, states: Sequence[State], n: int) -> None:
        self._groups = states[0]["k"].shape[1]
        k, v = ([F.pad(state[name].flatten(0, 1), (0, 0, n - state[name].shape[2], ROOM)) for state in states] for name in "kv")
        self._keys, self._values = torch.stack(k).transpose(2, 3).contiguous(), torch.stack(v)

    def at(self, n: int) -> Iterable[LayerCache]:
        """For the token that stands after `n` others, layer by layer."""
        if n == self._keys.shape[3]:
            self._keys, self._values = F.pad(self._keys, (0, n)), F.pad(self._values, (0, 0, 0, n))
        keys, values = self._keys, self._values
        parts = (keys.select(3, n), values.select(2, n), keys.narrow(3, 0, n + 1), values.narrow(2, 0, n + 1))
        return zip(*(part.unbind(0) for part in parts), strict=True)

    def select(self, rows: Tensor) -> None:
        """Row i becomes what row `rows[i]` was."""
        rows = rows.to(self._keys.device)
        self._keys, self._values = (
            kept.unflatten(1, (-1, self._groups)).index_select(1, rows).flatten(1, 2) for kept in (self._keys, self._values)
        )

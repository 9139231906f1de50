"""Decoding in fixed memory: every step has the same shapes and addresses, so that a CUDA graph can repeat it.

The number of tokens is a tensor, and a token attends to all slots of the KV cache under a mask. On a CPU this costs
more than the views of `FastDecoder`; on a GPU a small model's kernels take as long for a few hundred slots as for one.
"""

import torch
from torch import Tensor

from mini_tf.generation.fast_decoder import FastDecoder
from mini_tf.generation.kv_cache import FixedKVCache
from mini_tf.generation.position_cache import FixedPositions
from mini_tf.nn.token_positions import TokenPositions


class FixedDecoder:
    """A `FastDecoder` for at most `capacity` tokens. It has the shapes of `decoder`, and its tokens only by `load`."""

    def __init__(self, decoder: FastDecoder, rows: int, capacity: int) -> None:
        self._network, device = decoder.network, decoder.network.weight.device
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
        caches = () if self._kv_cache is None else self._kv_cache.at(self._n)
        logits = self._network.logits(x, positions, caches, states)
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

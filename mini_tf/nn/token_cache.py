"""The cache of earlier tokens in a mixer's state, with their positions: a part of `Mixer.start`'s dict.

Its tensors are layer inputs `x` (B, M, D), or keys `k` and values `v` (B, G, M, ..), or `spans` (B, M).
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from mini_tf.nn.state import State, batch_size, reorder
from mini_tf.nn.token_positions import POSITIONS_KEY, TokenPositions, Visibility

AXES = {"x": 1, "k": 2, "v": 2, "spans": 1}
"""The axis of the tokens."""


def empty_cache(**tensors: Tensor) -> State:
    """The cache without tokens, from tensors of length 0."""
    return {**tensors, POSITIONS_KEY: {"start": 0}}


def append_tokens(state: State, visibility: Visibility, **new: Tensor) -> tuple[State, Visibility]:
    """The state with the tensors of new tokens behind those of the cache, and their mask with the cache in front."""
    tensor = next(iter(new.values()))
    visibility = visibility.with_cache(token_positions_of(state), tensor.shape[0], tensor.device)
    joined = {name: torch.cat([state[name], tensor], dim=AXES[name]) for name, tensor in new.items()}
    return state | joined | {POSITIONS_KEY: visibility.memory.to_state()}, visibility


def last_tokens(state: State, n: int) -> State:
    """The state with only the last `n` tokens of the cache."""
    before = token_positions_of(state)
    token_positions = before.last(n)
    first = before.length - token_positions.length
    kept = {
        name: state[name].narrow(axis, first, token_positions.length) for name, axis in AXES.items() if name in state
    }
    return state | kept | {POSITIONS_KEY: token_positions.to_state()}


def select_tokens(state: State, kept: Bool[Tensor, "B M"], n: int) -> State:
    """The state with only the tokens that are `kept`, at most `n` in a row; rows with fewer have padding in front."""
    before = token_positions_of(state)
    segments, positions = before.tensors(kept.shape[0], kept.device)
    index = kept.int().argsort(dim=1, stable=True)[:, before.length - n :]
    token_positions = TokenPositions(n, 0, segments.masked_fill(~kept, 0).gather(1, index), positions.gather(1, index))
    selected: State = {}
    for name, axis in AXES.items():
        if name in state:
            tensor = state[name]
            shape = [n if i == axis else size if i else -1 for i, size in enumerate(tensor.shape)]
            of_tensor = index.view(-1, *(n if i == axis else 1 for i in range(1, tensor.dim()))).expand(*shape)
            selected[name] = tensor.gather(axis, of_tensor)
    return state | selected | {POSITIONS_KEY: token_positions.to_state()}


def token_positions_of(state: State) -> TokenPositions:
    """The positions of the tokens in the cache."""
    length = next(state[name].shape[axis] for name, axis in AXES.items() if name in state)
    return TokenPositions.of_state(state[POSITIONS_KEY], length)


class SourceMemory(NamedTuple):
    """An encoded source and its positions.

    layers[i]: output of `Mixer.recall` of the cross-attention of layer i, such as keys and values; layers is None for a
    stack without cross-attention. copy: output of `CopyAttention.recall`; None without copy attention.
    """

    layers: list[State] | None
    token_positions: TokenPositions
    copy: State | None = None

    def states(self) -> list[State]:  # not a property: torch 2.10 cannot compile one of a named tuple
        """All that was computed of the source."""
        return [*(self.layers or []), *([] if self.copy is None else [self.copy])]

    def select(self, rows: Tensor) -> "SourceMemory":
        """Row i of the result is row `rows[i]`."""
        layers = None if self.layers is None else [reorder(layer, rows) or {} for layer in self.layers]
        return SourceMemory(layers, self.token_positions.select(rows), reorder(self.copy, rows))

    def visibility(self, queries: TokenPositions, rows: int, device: torch.device) -> Visibility:
        """The mask of the source for `rows` rows of tokens at `queries`; those that share a source are concatenated."""
        rows_per_source = rows // batch_size(self.states()[0])
        merged = queries if rows_per_source == 1 else queries.merge_rows(rows, rows_per_source, device)
        return Visibility(False, merged, self.token_positions, rows_per_source=rows_per_source)

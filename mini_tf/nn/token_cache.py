"""The cache of earlier tokens in a mixer's state, with their positions: a part of `Mixer.start`'s dict.

Its tensors are layer inputs `x` (B, M, D), or keys `k` and values `v` (B, G, M, ..).
"""

import torch
from torch import Tensor

from mini_tf.nn.state import State
from mini_tf.nn.token_positions import POSITIONS_KEY, TokenPositions, Visibility

AXES = {"x": 1, "k": 2, "v": 2}
"""The axis of the tokens."""


def empty_cache(**tensors: Tensor) -> State:
    """The cache without tokens, from tensors of length 0."""
    return {**tensors, POSITIONS_KEY: {"start": 0}}


def append_tokens(state: State, visibility: Visibility, **new: Tensor) -> tuple[State, Visibility]:
    """The state with the tensors of new tokens behind those of the cache, and their mask with the cache in front."""
    name, tensor = next(iter(new.items()))
    cached = TokenPositions.of_state(state[POSITIONS_KEY], state[name].shape[AXES[name]])
    visibility = visibility.with_cache(cached, len(tensor), tensor.device)
    joined = {name: torch.cat([state[name], tensor], dim=AXES[name]) for name, tensor in new.items()}
    return state | joined | {POSITIONS_KEY: visibility.memory.to_state()}, visibility


def last_tokens(state: State, n: int) -> State:
    """The state with only the last `n` tokens of the cache."""
    axes = {name: axis for name, axis in AXES.items() if name in state}
    length = max(state[name].shape[axis] for name, axis in axes.items())
    token_positions = TokenPositions.of_state(state[POSITIONS_KEY], length).last(n)
    first = length - token_positions.length
    kept = {name: state[name].narrow(axis, first, token_positions.length) for name, axis in axes.items()}
    return state | kept | {POSITIONS_KEY: token_positions.to_state()}

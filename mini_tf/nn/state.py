"""State of a model between calls (KV cache, recurrent state), and operations on it.

A state is a nested dict whose leaves are tensors with the batch as first axis, or ints (counts that are the same for
all rows). With state None a model returns None. A call may modify its input state in place, so use only the returned
state afterwards.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

State = dict[str, Any]
"""Values are states, tensors or ints; a recursive alias could not be checked at run time."""


def _apply(state: State | None, change: Callable[[Tensor], Tensor]) -> State | None:
    if state is None:
        return None
    tensors = {name: change(leaf) for name, leaf in state.items() if isinstance(leaf, Tensor)}
    return state | tensors | {name: _apply(leaf, change) for name, leaf in state.items() if isinstance(leaf, dict)}


def reorder(state: State | None, rows: Tensor) -> State | None:
    """Row i of the result is row `rows[i]` of `state`; for beam search, and to expand one prompt to several samples."""
    return _apply(state, lambda leaf: leaf.index_select(0, rows.to(leaf.device)))


def detach(state: State | None) -> State | None:
    """The state without its computation graph, for truncated backpropagation through time."""
    return _apply(state, Tensor.detach)


def move(state: State | None, device: torch.device) -> State | None:
    return _apply(state, lambda leaf: leaf.to(device))


def batch_size(state: State) -> int:
    """Number of rows of the tensors of `state`."""
    return next(leaf for leaf in flatten(state).values() if leaf.dim()).shape[0]


def nbytes(state: State | None) -> int:
    """Bytes of all tensors of `state`."""
    return sum(leaf.numel() * leaf.element_size() for leaf in flatten(state).values())


def flatten(state: State | None) -> dict[str, Tensor]:
    """Tensors by dotted names, to be stored in a file; ints become 0-d tensors, empty dicts are dropped."""
    flat: dict[str, Tensor] = {}
    for name, leaf in (state or {}).items():
        if isinstance(leaf, dict):
            flat |= {f"{name}.{rest}": tensor for rest, tensor in flatten(leaf).items()}
        else:
            flat[name] = leaf if isinstance(leaf, Tensor) else torch.tensor(leaf)
    return flat


def unflatten(flat: Mapping[str, Tensor]) -> State | None:
    """The inverse of `flatten`; None if there are no tensors. Raises ValueError if one name is a parent of another."""
    state: State = {}
    for name, tensor in flat.items():
        *folders, last = name.split(".")
        inner = state
        for folder in folders:
            inner = inner.setdefault(folder, {})
            if not isinstance(inner, dict):
                raise ValueError(f"{name!r} is below a tensor"[:200])
        inner[last] = tensor if tensor.dim() else int(tensor)
    return state or None

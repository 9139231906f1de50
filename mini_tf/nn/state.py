"""What a model remembers between calls, and the five things that are done to it.

A state is a nested dict. Its leaves are tensors, batch first, or plain ints (a count that is the same for all rows).
The key-value cache, recurrent memory, prefix sums and coverage are all states; None is no state at all, and nothing
is remembered where None went in. A state is used up by the call that takes it: only the one that comes out is valid.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

State = dict[str, Any]
"""Of further states, tensors and ints; a recursive alias could not be checked at run time."""


def _apply(state: State | None, change: Callable[[Tensor], Tensor]) -> State | None:
    if state is None:
        return None
    tensors = {name: change(leaf) for name, leaf in state.items() if isinstance(leaf, Tensor)}
    return state | tensors | {name: _apply(leaf, change) for name, leaf in state.items() if isinstance(leaf, dict)}


def reorder(state: State | None, rows: Tensor) -> State | None:
    """Row i of the result is row `rows[i]` of `state`: beams that swap rows, or one prompt for several samples."""
    return _apply(state, lambda leaf: leaf.index_select(0, rows.to(leaf.device)))


def detach(state: State | None) -> State | None:
    """The same values with no way back for gradients: truncated backpropagation."""
    return _apply(state, Tensor.detach)


def move(state: State | None, device: torch.device) -> State | None:
    return _apply(state, lambda leaf: leaf.to(device))


def batch_size(state: State) -> int:
    """How many rows its tensors have."""
    return len(next(leaf for leaf in flatten(state).values() if leaf.dim()))


def nbytes(state: State | None) -> int:
    """Bytes that the tensors of `state` hold."""
    return sum(leaf.numel() * leaf.element_size() for leaf in flatten(state).values())


def flatten(state: State | None) -> dict[str, Tensor]:
    """A flat dict of tensors, by dotted names, as a file stores it; ints become tensors without axes, empty parts are left out."""
    flat: dict[str, Tensor] = {}
    for name, leaf in (state or {}).items():
        if isinstance(leaf, dict):
            flat |= {f"{name}.{rest}": tensor for rest, tensor in flatten(leaf).items()}
        else:
            flat[name] = leaf if isinstance(leaf, Tensor) else torch.tensor(leaf)
    return flat


def unflatten(flat: Mapping[str, Tensor]) -> State | None:
    """The inverse of `flatten`; no tensors at all are no state. ValueError where a name stands below another."""
    state: State = {}
    for name, tensor in flat.items():
        *folders, last = name.split(".")
        here = state
        for folder in folders:
            here = here.setdefault(folder, {})
            if not isinstance(here, dict):
                raise ValueError(f"{name!r} stands below a tensor"[:200])
        here[last] = tensor if tensor.dim() else int(tensor)
    return state or None

"""A stand-in for CUDA graphs on a CPU: operations are noted and later repeated on the same memory.

As with a graph, numbers and branches of Python are those of the recording, what is not a tensor cannot change, nothing
that a function does while it is recorded has an effect, the state of the generator cannot be read, and an operation
whose result's size or whose branches depend on the values of tensors, for which the host would wait for the device, is
refused.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from mini_tf.nn.cuda_graphs import NotCapturable

T = TypeVar("T")
WAITING = {
    *(
        "_local_scalar_dense",
        "nonzero",
        "nonzero_static",
        "masked_select",
        "_unique",
        "_unique2",
        "unique_dim",
        "unique_consecutive",
    ),
    *("equal", "is_nonzero", "bincount", "repeat_interleave.Tensor", "lift_fresh", "histc"),
}
"""For which the host waits for a GPU: it must know a value, a size or where to copy from (`torch.tensor`)."""


class Waiting(TorchDispatchMode):
    """Refuses operations that wait for a device."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.name().removeprefix("aten::")
        by_mask = name in ("index.Tensor", "index_put_", "index_put", "_index_put_impl_") and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        if by_mask or name in WAITING or name.partition(".")[0] in WAITING:
            raise NotCapturable(name)
        return function(*args, **(kwargs or {}))


class _Notes(Waiting):
    """Notes operations with their arguments and results, and what numbers they overwrite."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, Any]] = []
        self.made: dict[int, Tensor] = {}
        self.overwritten: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        written = [
            argument
            for argument, of in zip(args, function._schema.arguments, strict=False)
            if of.is_out or _is_written(of)
        ]
        for tensor in tree_leaves(written):
            if isinstance(tensor, Tensor) and _memory(tensor) not in self.made:
                self.overwritten.append((tensor.detach(), tensor.detach().clone()))
        result = super().__torch_dispatch__(function, types, args, kwargs)
        given = {_memory(tensor) for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and _memory(tensor) not in given:
                self.made[_memory(tensor)] = tensor.detach()
        self.operations.append((function, *tree_map_only(Tensor, Tensor.detach, (args, kwargs, result))))
        return result


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


class Tapes:
    """A `Recorder`. recorded: the number of functions; replayed: how often any was."""

    def __init__(self) -> None:
        self._notes: list[_Notes] = []
        self.replayed = 0

    @property
    def recorded(self) -> int:
        return len(self._notes)

    @contextmanager
    def rehearsing(self) -> Iterator[None]:
        with Waiting():
            yield

    def record(self, function: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        notes, state = _Notes(), torch.get_rng_state()
        try:
            with (
                notes,
                mock.patch.object(torch, "get_rng_state", side_effect=NotCapturable("the state of the generator")),
            ):
                result = function()
        finally:
            torch.set_rng_state(state)
            with torch.no_grad():
                for tensor, before in reversed(notes.overwritten):
                    tensor.copy_(before)
        number = len(self._notes)
        self._notes.append(notes)
        _spoil(notes)
        return result, lambda: self._replay(number)

    @torch.no_grad()
    def _replay(self, number: int) -> None:
        self.replayed += 1
        for later in self._notes[number + 1 :]:
            _spoil(later)
        for function, args, kwargs, result in self._notes[number].operations:
            again = function(*args, **kwargs)
            for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                if isinstance(old, Tensor) and _memory(old) != _memory(new):
                    old.copy_(new)


def _spoil(notes: _Notes) -> None:
    """Overwrite what a function has made: without a replay it has no values, and another replay may overwrite them."""
    for tensor in notes.made.values():
        if tensor.is_floating_point():
            with torch.inference_mode(tensor.is_inference()):
                tensor.fill_(torch.nan)

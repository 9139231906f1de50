"""A second device in Python, for machines without a GPU: it computes what the CPU computes, and refuses what a GPU
refuses, such as an operation on tensors of two devices, or an array of numpy from its memory.

It is torch's device `second` (PrivateUse1). What only CUDA has (streams, graphs, kernels of Triton) it has not.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map

from mini_tf.recipe.sections import Runtime
from mini_tf.training.machine import device as machine

NAME = "second"
_aten = torch.ops.aten
_COPIES = {_aten._to_copy, _aten.copy_}
_INDEXED = {_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_}
"""Here a GPU takes indices from the CPU, too."""


class SecondTensor(torch.Tensor):
    """A tensor of the second device; `on_cpu` has its values."""

    on_cpu: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, on_cpu: torch.Tensor) -> "SecondTensor":
        tensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            on_cpu.size(),
            strides=on_cpu.stride(),
            storage_offset=on_cpu.storage_offset(),
            dtype=on_cpu.dtype,
            device=torch.device(NAME, 0),
        )
        tensor.on_cpu = on_cpu
        return tensor  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(function, *args, **(kwargs or {}))

    def new_tensor(self, data: Any, *, dtype: torch.dtype | None = None, **kwargs: Any) -> torch.Tensor:
        return torch.tensor(data, dtype=dtype or self.dtype, device=self.device, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(_as_index(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_as_index(key), value)

    def tolist(self) -> Any:
        return self.on_cpu.tolist()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{NAME}({self.on_cpu})"


def _as_index(key: Any) -> Any:
    """Lists as tensors, which torch else makes without asking the dispatcher."""
    if isinstance(key, tuple):
        return tuple(map(_as_index, key))
    return torch.tensor(key) if isinstance(key, list) else key


def _compute(function: Any, *args: Any, **kwargs: Any) -> Any:
    packet, asked = function._overloadpacket, kwargs.get("device")
    inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    here = [tensor for tensor in inputs if isinstance(tensor, SecondTensor)]
    elsewhere = [tensor for tensor in inputs if not isinstance(tensor, SecondTensor) and tensor.dim()]
    if packet in _INDEXED and isinstance(args[0], SecondTensor):
        elsewhere = [tensor for tensor in elsewhere if any(tensor is value for value in args[2:3])]
    if here and elsewhere and packet not in _COPIES:
        shapes = ", ".join(str(list(tensor.shape)) for tensor in elsewhere)
        raise RuntimeError(f"{function}: expected all tensors on {NAME}, but found on the CPU: {shapes}")
    if asked is not None:
        kwargs["device"] = torch.device("cpu")
    made = function(*tree_map(_on_cpu, args), **tree_map(_on_cpu, kwargs))
    if packet is _aten.copy_:
        return args[0]
    if asked is not None and torch.device(asked).type == "cpu":
        return made
    same = {id(tensor.on_cpu): tensor for tensor in here}  # what an operation in place returns

    def wrapped(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        with torch.inference_mode(False):  # a view of an ordinary tensor must not be an inference tensor
            return same[id(leaf)] if id(leaf) in same else SecondTensor(leaf)

    return tree_map(wrapped, made)


def _on_cpu(leaf: Any) -> Any:
    return leaf.on_cpu if isinstance(leaf, SecondTensor) else leaf


class _Module(backend_registration._DummyBackendModule):
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)


def _then_moved(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """torch makes these of a list without asking the dispatcher, which a device in Python needs."""

    def made(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        tensor = make(*args, **kwargs)
        return tensor if device is None else tensor.to(device)

    return made


def install() -> torch.device:
    """The second device, in this process for good. Call it before the first backward pass, for which torch starts
    threads.
    """
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    library = torch.library.Library("_", "IMPL")
    library.fallback(_compute, "PrivateUse1")
    install.library = library  # type: ignore[attr-defined]  # it ends with the object
    torch.tensor, torch.as_tensor = _then_moved(torch.tensor), _then_moved(torch.as_tensor)
    torch.accelerator.synchronize = lambda device=None: None
    torch.__future__.set_swap_module_params_on_conversion(True)  # so that tied weights stay so
    return torch.device(NAME, 0)


@contextmanager
def used_by_commands() -> Iterator[None]:
    """Every command uses the second device, whichever its recipe or option names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "_open", lambda name, key, reason: torch.device(NAME, 0))
        patch.setattr(Runtime, "on", classmethod(lambda cls, device: cls(compile=False)))  # which knows no such name
        yield

"""Models without memory, names and shapes only, to know what they need before it is allocated: on torch's meta device,
or as tensors of the CPU without data.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

Built = TypeVar("Built")
_FILLS = {"normal_", "uniform_", "trunc_normal_", "bernoulli_"}


class _SkipInit(TorchFunctionMode):
    """Skips random initialization, which has no effect on the meta device and imports a second's worth of torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _FILLS:
            return next(iter((*args, *(kwargs or {}).values())))  # the tensor; torch.nn.init passes it by name
        return func(*args, **(kwargs or {}))


def on_meta_device(build: Callable[[], Built]) -> Built:
    """The result of `build` with tensors that have shape and dtype but no data; random generators are not advanced."""
    with torch.device("meta"), _SkipInit():
        return build()


def without_data(build: Callable[[], Built]) -> tuple[Built, FakeTensorMode]:
    """The result of `build` with tensors of the CPU that have no data, and the mode in which it can be called.

    Its operations choose the kernels that they would choose with data, which they do not on the meta device, so the
    same tensors are saved for the backward pass. An operation whose shape or value depends on the data raises an error.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, _SkipInit():
        return build(), mode

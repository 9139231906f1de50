"""Models without memory, names and shapes only, to know what they need before it is allocated: torch's meta device."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
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

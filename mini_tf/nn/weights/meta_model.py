"""A model's names and shapes without its memory: built on torch's meta device, so that what it needs is known before it is taken."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

Built = TypeVar("Built", bound=nn.Module)
_FILLS = {"normal_", "uniform_", "trunc_normal_", "bernoulli_"}


class _Unfilled(TorchFunctionMode):
    """Leaves out what draws random numbers: on the meta device there is nothing to fill, and asking imports a second's worth of torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _FILLS:
            return next(iter((*args, *(kwargs or {}).values())))  # the tensor; torch.nn.init hands it on by name
        return func(*args, **(kwargs or {}))


def on_meta_device(build: Callable[[], Built]) -> Built:
    """What `build` makes, with tensors that have shape and type but no content; the random generator stays as it was."""
    with torch.device("meta"), _Unfilled():
        return build()

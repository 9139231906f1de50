"""Operations of torch done otherwise: dropout, cumulative sums, several linear layers of one input as one product."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def handwritten() -> bool:
    """Hand-written gradients are used in place of torch's: not in a compiled graph, which has its own kernels.

    In code that is exported (`hf/formats/code.py`) it is False, and what depends on it is left out.
    """
    return not torch.compiler.is_compiling()


def graph_operator(parameters: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """In a compiled graph the function becomes an operator whose result is like its second argument: torch.compile
    would unroll its loop, and cannot write parts in place. Called otherwise, an operator would import the compiler.
    """

    def decorate(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        name = f"minitf::{function.__name__}"
        torch.library.custom_op(
            name, lambda *args: function(*args).contiguous(), mutates_args=(), schema=f"({parameters}) -> Tensor"
        )
        torch.library.register_fake(
            name, lambda _, x, *rest: torch.empty_like(x, memory_format=torch.contiguous_format)
        )
        operator = getattr(torch.ops.minitf, function.__name__)
        return wraps(function)(lambda *args: operator(*args) if torch.compiler.is_compiling() else function(*args))

    return decorate


class Dropout(nn.Module):
    """Like nn.Dropout (Srivastava et al. 2014), faster on a CPU; random numbers come from torch's global generator."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        if x.device.type != "cpu" or not handwritten():
            return F.dropout(x, self.rate)
        dropped: Tensor = _CPUDropout.apply(x, self.rate)
        return dropped


class _CPUDropout(torch.autograd.Function):
    """Dropout for CPUs, where torch draws one number per element: here a 64-bit number serves four elements.

    The probability is a multiple of 1/65536. Forward pass of a million elements on 2 cores: 1.7 ms instead of 6.4 ms.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        drawn = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        threshold = min(round(rate * 2**16), 2**16 - 1) - 2**15
        keep = (drawn[: x.numel()] >= threshold).view(x.shape)
        ctx.save_for_backward(keep)
        ctx.scale = 1 / (1 - rate)
        return (x * keep).mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return (dy * keep).mul_(ctx.scale), None


def cumulative_sum(x: Tensor, dim: int) -> Tensor:
    """`x.cumsum(dim)`; by log2(n) shifted additions in torch's deterministic mode, which has no GPU kernel for it.

    Source: Hillis and Steele 1986, "Data parallel algorithms", doi:10.1145/7902.7903.
    """
    n = x.shape[dim]
    if not torch.are_deterministic_algorithms_enabled():
        return x.cumsum(dim)
    shift = 1
    while shift < n:
        x = torch.cat([x.narrow(dim, 0, shift), x.narrow(dim, shift, n - shift) + x.narrow(dim, 0, n - shift)], dim)
        shift *= 2
    return x


SPLIT_PRODUCTS = frozenset({"cuda"})
"""Devices on which a product for each part is about as fast as one for all, and the copies of one are not worth it."""


class FusedLinear(nn.Linear):
    """The concatenated outputs of linear layers of `sizes`; Muon and LoRA treat the parts as separate matrices."""

    def __init__(self, d_in: int, sizes: Sequence[int], bias: bool) -> None:
        super().__init__(d_in, sum(sizes), bias=bias)
        self.sizes = tuple(sizes)


class ResidualLinear(nn.Linear):
    """A projection to the residual stream, which gets a smaller initialization, or zero (`nn/weights.py`)."""


def split_outputs(linear: nn.Module, x: Float[Tensor, "*at D"], sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """The outputs (*at, size) of the parts of `linear`, which may be views of one tensor.

    On a GPU the gradients of the parts are not concatenated, but multiplied one by one. A compiler concatenates them
    in the kernels that compute them.
    """
    trains = torch.is_grad_enabled() and x.device.type in SPLIT_PRODUCTS
    if not handwritten() or not trains or not isinstance(linear, nn.Linear):
        return tuple(linear(x).split(tuple(sizes), dim=-1))
    parts: tuple[Tensor, ...] = _SplitLinear.apply(x, linear.weight, linear.bias, tuple(sizes))
    return parts


class _SplitLinear(torch.autograd.Function):
    """y_i = x W_i^T + b_i;  dx = sum of dy_i W_i,  dW_i = dy_i^T x, written into one matrix dW."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
        device = x.device.type
        cast = torch.is_autocast_enabled(device) and x.dtype != torch.float64  # which autocast leaves as it is
        dtype = torch.get_autocast_dtype(device) if cast else x.dtype
        ctx.dtypes, ctx.sizes = (x.dtype, weight.dtype, None if bias is None else bias.dtype), sizes
        x, weight, bias = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
        ctx.save_for_backward(x, weight)
        biases = [None] * len(sizes) if bias is None else bias.split(sizes)
        return tuple(F.linear(x, w, b) for w, b in zip(weight.split(sizes), biases, strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_parts: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        x_dtype, weight_dtype, bias_dtype = ctx.dtypes
        rows = x.flatten(0, -2)
        d_x, d_weight, d_bias = torch.zeros_like(rows), torch.empty_like(weight), weight.new_empty(len(weight))
        parts = zip(d_parts, *(t.split(ctx.sizes) for t in (weight, d_weight, d_bias)), strict=True)
        for dy, w, dw, db in parts:
            dy = dy.reshape(-1, dy.shape[-1])
            d_x.addmm_(dy, w)
            torch.mm(dy.t(), rows, out=dw)
            if bias_dtype is not None:
                torch.sum(dy, dim=0, out=db)
        return (
            d_x.view_as(x).to(x_dtype),
            d_weight.to(weight_dtype),
            None if bias_dtype is None else d_bias.to(bias_dtype),
            None,
        )

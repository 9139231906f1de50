"""LayerNorm (Ba et al. 2016, arXiv:1607.06450) and RMSNorm (Zhang, Sennrich 2019, arXiv:1910.07467)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mini_tf.nn.layers.kernels import handwritten


class RMSNorm(nn.Module):
    """(..., D) -> (..., D), normalized to root mean square 1, then scaled."""

    def __init__(self, d_model: int, eps: float, weight: bool) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model)) if weight else None

    def forward(self, x: Float[Tensor, "*at D"]) -> Float[Tensor, "*at D"]:
        return rms_norm(x, self.eps, self.weight)


def rms_norm(x: Float[Tensor, "*at D"], eps: float, weight: Tensor | None = None) -> Float[Tensor, "*at D"]:
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis."""
    if x.device.type != "cpu" or not handwritten():
        if weight is not None and weight.dim() > 1:  # one of each head
            return F.rms_norm(x, x.shape[-1:], None, eps) * weight
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    # Squares are summed in at least fp32.
    y: Tensor = (
        _UnitRMS.apply(x.float(), eps).to(x.dtype)
        if x.dtype in (torch.bfloat16, torch.float16)
        else _UnitRMS.apply(x, eps)
    )
    return y if weight is None else y * weight


class _UnitRMS(torch.autograd.Function):
    """RMSNorm for CPUs, where torch's backward pass reads memory eight times and this one once.

    With y = x r and r = 1 / sqrt(mean(x^2) + eps):  dx = r (dy - y mean(dy y)).  Weight normalization v g / |v| has
    dv = g/|v| (dw - v sum(dw v) / |v|^2) and a fused kernel: the same with v = y, |v| = sqrt(D), g = r sqrt(D).
    Only y is saved, which the next matrix product saves too.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        y, r = unit_rms(x, eps)
        ctx.save_for_backward(y, r)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        return unit_rms_backward(dy, *ctx.saved_tensors), None


def unit_rms(x: Float[Tensor, "*at D"], eps: float) -> tuple[Float[Tensor, "*at D"], Float[Tensor, "*at 1"]]:
    """y = x r and r = 1 / sqrt(mean(x^2) + eps)."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    r = norm.square_().mul_(1 / x.shape[-1]).add_(eps).rsqrt_()
    return x * r, r


def unit_rms_backward(
    dy: Float[Tensor, "*at D"], y: Float[Tensor, "*at D"], r: Float[Tensor, "*at 1"]
) -> Float[Tensor, "*at D"]:
    """The gradient of x; see `_UnitRMS`."""
    d = y.shape[-1]
    norm = torch.full_like(r, d**0.5)
    # The kernel ignores strides.
    rows = [t.reshape(-1, t.shape[-1]).contiguous() for t in (dy, y, r * d**0.5, norm)]
    dx: Tensor = torch.ops.aten._weight_norm_interface_backward(*rows, 0)[0]
    return dx.view_as(y)


NORMS: dict[str, Callable[[int, float, bool, bool], nn.Module]] = {
    "layer": lambda d_model, eps, bias, weight: nn.LayerNorm(d_model, eps, weight, bias and weight),
    "rms": lambda d_model, eps, bias, weight: RMSNorm(d_model, eps, weight),
}
"""Norms by the names used in recipes: functions of d_model, eps, and whether there is a bias and a scale."""
if TYPE_CHECKING:
    NormKind = str
else:
    NormKind = Literal[tuple(NORMS)]


def build_norm(kind: NormKind, d_model: int, eps: float, bias: bool, weight: bool = True) -> nn.Module:
    """A norm over the last axis; `weight`: with a learned scale; `bias`: LayerNorm also with a learned bias."""
    return NORMS[kind](d_model, eps, bias, weight)


def frozen_norm(norm: nn.Module, x: Float[Tensor, " D"]) -> tuple[Callable[[Tensor], Tensor], Tensor | None]:
    """A linear function (..., D) -> (..., D) and a constant (D,), whose sum is the norm at x.

    The standard deviation, or root mean square, of x is frozen; the constant is the bias, None = 0. ValueError for
    another module than a norm of this file or `nn.Identity`.
    """
    if isinstance(norm, nn.Identity):
        return (lambda part: part), None
    if isinstance(norm, nn.LayerNorm):
        scale = (x.var(correction=0) + norm.eps).rsqrt()
        weight = scale if norm.weight is None else scale * norm.weight
        return (lambda part: (part - part.mean(dim=-1, keepdim=True)) * weight), norm.bias
    if isinstance(norm, RMSNorm):
        scale = (x.square().mean() + norm.eps).rsqrt()
        weight = scale if norm.weight is None else scale * norm.weight
        return (lambda part: part * weight), None
    raise ValueError(f"{type(norm).__name__} is no norm")


def fast_norm(norm: nn.Module, like: Tensor) -> Callable[[Tensor], Tensor]:
    """A norm as a function without gradient and with low overhead, for vectors of the shape and dtype of `like`."""
    if type(norm) is nn.LayerNorm:
        shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    if type(norm) is RMSNorm:
        return fast_rms_norm(torch.ones_like(like) if norm.weight is None else norm.weight, norm.eps)
    return norm.forward


def fast_rms_norm(weight: Tensor, eps: float) -> Callable[[Tensor], Tensor]:
    """RMSNorm in four operations: x / sqrt(|x|^2 + D eps), times sqrt(D) and the weight; elsewhere than on a CPU in
    one.

    weight: (D,), or (N, D) for inputs (B, N, D).
    """
    d = weight.shape[-1]
    if weight.device.type != "cpu":
        if weight.dim() > 1:
            return lambda x: F.rms_norm(x, (d,), None, eps) * weight
        return lambda x: F.rms_norm(x, (d,), weight, eps)
    least, scale = weight.new_tensor((d * eps) ** 0.5), weight * d**0.5
    return lambda x: (x / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), least)).mul_(scale)

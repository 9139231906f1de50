"""Queries and keys on a CPU, rotated and normalized, and values: one function from the output of their projection.

Composed of single operations, the same takes twice as many passes over memory: the two parts of each pair, the three
parts of the projection and, in bf16, every change of precision are copied forth and back. `nn/attention.py` has the
same unfused, for other devices, compilers and further settings.
"""

from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from mini_tf.nn.layers.norm import unit_rms, unit_rms_backward

FUSED = frozenset({"cpu"})
"""Devices with one function for all of it."""


def fuses(x: Tensor) -> bool:
    """Whether `rotated_heads` is used for an input."""
    return x.device.type in FUSED and not torch.compiler.is_compiling()


def rotated_heads(
    qkv: Float[Tensor, "B L N"],
    sizes: tuple[int, int, int],
    rotations: Complex[Tensor, "_ L 1 pairs"] | None,
    eps: float | None,
) -> tuple[Float[Tensor, "B H L K"], Float[Tensor, "B G L K"], Float[Tensor, "B G L V"]]:
    """Queries and keys, multiplied by `rotations` and then normalized to root mean square 1, and values.

    sizes: H, G and K. rotations: of `PositionalEncoding.rotations`, None: not rotated. eps None: not normalized. The
    arithmetic is in at least fp32; the results have the dtype of qkv.
    """
    q, k, v = _RotatedHeads.apply(qkv, sizes, rotations, eps)
    return q, k, v


class _RotatedHeads(torch.autograd.Function):
    """Saves the rotated and normalized queries and keys, which the attention scores save too."""

    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, sizes: tuple[int, int, int], rotations: Tensor | None, eps: float | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        n_heads, n_kv_heads, d_k = sizes
        n = n_heads + n_kv_heads
        y, scale = qkv[..., : n * d_k].to(torch.promote_types(qkv.dtype, torch.float32)), None
        if rotations is not None:
            first, second = y.unflatten(-1, (n, 2, -1)).unbind(-2)
            y = torch.view_as_real(torch.complex(first, second).mul_(rotations)).flatten(-2)
        y = y.reshape(*qkv.shape[:2], n, d_k)  # (B, L, H + G, K)
        if eps is not None:
            y, scale = unit_rms(y, eps)
        y = y.to(qkv.dtype)
        ctx.save_for_backward(y, scale, rotations)
        q, k = y.transpose(1, 2).split([n_heads, n_kv_heads], dim=1)
        # A view would keep the whole projection in memory.
        v = qkv[..., n * d_k :].unflatten(-1, (n_kv_heads, -1)).contiguous().transpose(1, 2)
        return q, k, v

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor | None, ...]:
        y, scale, rotations = ctx.saved_tensors
        n, d_k = y.shape[2], y.shape[3]
        exact = torch.promote_types(y.dtype, torch.float32)
        dy = torch.cat([dq.transpose(1, 2), dk.transpose(1, 2)], dim=2).to(exact)
        dx = dy if scale is None else unit_rms_backward(dy, y.to(exact), scale)
        d_qkv = dq.new_empty(*y.shape[:2], n * d_k + dv.shape[1] * dv.shape[3])
        if rotations is None:
            d_qkv[..., : n * d_k] = dx.flatten(2)
        else:
            pairs = torch.view_as_complex(dx.unflatten(-1, (-1, 2))) * rotations.conj()
            parts = d_qkv[..., : n * d_k].unflatten(-1, (n, 2, -1))
            parts[..., 0, :], parts[..., 1, :] = pairs.real, pairs.imag
        d_qkv[..., n * d_k :] = dv.transpose(1, 2).flatten(2)
        return d_qkv, None, None, None

"""Attention whose keys and values are those of each row and others that all rows share, in one softmax.

On a CPU these are two calls of the fused kernel. Each returns its output and the logarithm of its sum, with which the
outputs are merged. The backward pass of the kernel needs only the output and that logarithm: with those of the joint
softmax, two calls give its exact gradient. So shared keys are not copied for each row, and the causal kernel needs no
mask. Elsewhere, and with dropout, a learned bias or empty tensors, shared keys are put before those of each row.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from mini_tf.nn.layers.fused_attention import fused_attention, repeat_kv

KeysValues = tuple[Tensor, Tensor]
"""Keys and values of no token: (G, N, K) and (G, N, V), or (1, H, N, K) and (1, H, N, V) for every head."""


def keys_of_heads(persistent: KeysValues, q: Float[Tensor, "B H L _"]) -> KeysValues:
    """Those of every head, in the dtype of the queries."""
    keys, values = (repeat_kv(t[None].to(q.dtype), q.shape[1]) for t in persistent)
    return keys, values


def merges(q: Tensor, dropout_rate: float) -> bool:
    """Two calls of the kernel are merged, which needs no causal mask."""
    return dropout_rate == 0 and q.device.type == "cpu"


def persistent_attention(
    q: Float[Tensor, "B H L _"],
    k: Float[Tensor, "B H M K"],
    v: Float[Tensor, "B H M V"],
    mask: Tensor | None,
    shared: KeysValues,
    scale: float,
    dropout_rate: float,
    causal: bool = False,
) -> Float[Tensor, "B H L V"]:
    """As `fused_attention`, with keys of every head that all rows share and that the mask does not apply to.

    q (B, H, L, 2 K): the second half is compared with shared keys.
    """
    learned = mask is not None and mask.requires_grad
    empty = not (q.numel() and k.numel())  # the kernel on a CPU divides by these sizes
    if learned or empty or not merges(q, dropout_rate):
        return _concatenated(q, k, v, mask, shared, scale, dropout_rate, causal)
    d_k, d_v, dtype = k.shape[-1], v.shape[-1], q.dtype
    if dtype == torch.bfloat16 and torch.is_grad_enabled():  # see `fused_attention`
        q, k, v, shared = q.float(), k.float(), v.float(), (shared[0].float(), shared[1].float())
    queries, width = (q[..., :d_k], q[..., -d_k:]), max(d_k, d_v)
    q, shared_q, k, v, shared_k, shared_v = (_widened(t, width) for t in (*queries, k, v, *shared))
    bias = None if mask is None else _as_bias(mask, q.dtype)
    y: Tensor = _Merged.apply(causal, scale, bias, q, shared_q, k, v, shared_k, shared_v)
    return y[..., :d_v].to(dtype)


def _concatenated(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, shared: KeysValues, scale: float, dropout_rate: float, causal: bool
) -> Tensor:
    """One call, under a mask; queries of twice the width have keys with zeros in the half that is not theirs."""
    if causal:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    if mask is not None:
        mask = F.pad(mask, (shared[0].shape[2], 0), value=mask.dtype == torch.bool)  # True, or a bias of 0
    zeros = q.shape[-1] - k.shape[-1]
    keys, values = (F.pad(shared[0], (zeros, 0)), F.pad(k, (0, zeros))), (shared[1], v)
    k, v = (torch.cat([first.expand(len(own), -1, -1, -1), own], dim=2) for first, own in (keys, values))
    return fused_attention(q, k, v, mask, scale, dropout_rate)


def _as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else mask.to(dtype)


def _widened(t: Tensor, width: int) -> Tensor:
    """With zeros appended to its last axis: the fused kernel needs d_k = d_v."""
    return F.pad(t, (0, width - t.shape[-1])) if t.shape[-1] < width else t


class _Merged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, causal: bool, scale: float, bias: Tensor | None, *tensors: Tensor) -> Tensor:
        q, shared_q, k, v, shared_k, shared_v = tensors
        kernel, batch = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, len(q)
        own, own_log = kernel(q, k, v, 0.0, causal, attn_mask=bias, scale=scale)
        if bias is not None:  # the kernel's logarithm for a query without visible keys is 0
            own_log = own_log.masked_fill((bias == -torch.inf).all(-1), -torch.inf)
        shared, shared_log = kernel(_one_row(shared_q), shared_k, shared_v, 0.0, False, scale=scale)
        shared, shared_log = _rows(shared, batch), _rows(shared_log, batch)
        share = torch.sigmoid(own_log - shared_log)  # of the sum, by the keys of the row
        y = torch.lerp(shared, own, share.to(own.dtype)[..., None])
        ctx.save_for_backward(*tensors, y, torch.logaddexp(own_log, shared_log), bias)
        ctx.causal, ctx.scale = causal, scale
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        q, shared_q, k, v, shared_k, shared_v, y, log, bias = ctx.saved_tensors
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        dq, dk, dv = kernel(dy, q, k, v, y, log, 0.0, ctx.causal, attn_mask=bias, scale=ctx.scale)
        dy, shared_q, y, log = (_one_row(t) for t in (dy, shared_q, y, log))
        shared_dq, shared_dk, shared_dv = kernel(dy, shared_q, shared_k, shared_v, y, log, 0.0, False, scale=ctx.scale)
        return None, None, None, dq, _rows(shared_dq, len(q)), dk, dv, shared_dk, shared_dv


def _one_row(t: Tensor) -> Tensor:
    """(B, H, L, ..) -> (1, H, B L, ..): a view if t is one of (B, L, H, ..)."""
    return t.transpose(0, 1).flatten(1, 2)[None]


def _rows(t: Tensor, batch: int) -> Tensor:
    """The inverse of `_one_row`."""
    rows: Tensor = t[0].unflatten(1, (batch, -1))
    return rows.transpose(0, 1)

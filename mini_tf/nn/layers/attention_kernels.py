"""Attention in few operations: softmax(q k^T * scale + bias) v under a mask, in memory linear in the length, and before
it queries and keys rotated and normalized at once.

If the mask needs no tensor, the kernel is called without one. Otherwise a small mask is computed at once, and a large
one in blocks of queries, which are recomputed in the backward pass. `nn/attention.py` has the same unfused.
Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Complex, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from mini_tf.nn.layers.norm import unit_rms, unit_rms_backward
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.token_positions import Visibility

MASK_ELEMENTS = 2**22
"""Maximum elements of a mask that is computed at once, and of a block of a larger mask."""
MORE_ELEMENTS = {"cuda": 2**26}
"""The same on devices that need larger blocks to be busy: 128 MiB in bf16."""
ZEROS_IF_BLIND = frozenset({"cpu"})
"""Devices whose kernels give zeros, and gradients of 0, for a query that attends to nothing; those of GPUs, and of
runtimes that a model is exported to, give NaN."""


HALF_LENGTH = 256
"""Maximum length of rows whose attention in bf16 is computed unfused on a CPU: longer ones have too many weights."""


def fused_attention(
    q: Float[Tensor, "B H L K"],
    k: Float[Tensor, "B H M K"],
    v: Float[Tensor, "B H M V"],
    mask: Tensor | None,
    scale: float,
    dropout_rate: float,
    causal: bool = False,
) -> Float[Tensor, "B H L V"]:
    """The fused kernel under a mask: bool, True where a query attends, or floats that are added to the scores.

    Zeros for a query that attends to nothing. Where no kernel can be relied on for that, the query attends to all keys,
    and its output is replaced by zeros, so no gradient passes through it.
    """
    d_k, d_v = q.shape[-1], v.shape[-1]
    half = q.dtype == torch.bfloat16 and q.device.type == "cpu" and torch.is_grad_enabled()
    short = max(q.shape[2], k.shape[2]) <= HALF_LENGTH
    if half and short and mask is None and not dropout_rate and not torch.compiler.is_compiling():
        # Keys and values of an earlier block of a stream may be in fp32.
        attended: Tensor = _HalfAttention.apply(q, k.to(q.dtype), v.to(q.dtype), scale, causal)
        return attended
    if scale == 0 and torch.compiler.is_exporting():  # of uniform weights: ONNX Runtime refuses this scale
        q, scale = q * 0, 1.0
    blind = None
    if mask is not None and (q.device.type not in ZEROS_IF_BLIND or torch.compiler.is_exporting()):
        visible = mask if mask.dtype == torch.bool else mask != -torch.inf
        blind = ~visible.any(dim=-1, keepdim=True)
        mask = mask | blind if mask.dtype == torch.bool else mask.masked_fill(blind, 0.0)
    # The fused kernels need d_k = d_v; zero padding changes neither attention scores nor values.
    if d_k < d_v:
        q, k = F.pad(q, (0, d_v - d_k)), F.pad(k, (0, d_v - d_k))
    elif d_v < d_k:
        v = F.pad(v, (0, d_k - d_v))
    if half:
        # On CPUs the backward pass of the fused kernel takes five to twenty times as long in bf16 as in fp32.
        with torch.autocast("cpu", enabled=False):
            mask = mask.float() if mask is not None and mask.dtype == torch.bfloat16 else mask
            y = F.scaled_dot_product_attention(
                q.float(), k.float(), v.float(), mask, dropout_rate, causal, scale=scale
            ).to(q.dtype)
    else:
        y = F.scaled_dot_product_attention(q, k, v, mask, dropout_rate, causal, scale=scale)
    y = y if blind is None else y.masked_fill(blind, 0.0)
    return y[..., :d_v] if d_v < d_k else y


class _HalfAttention(torch.autograd.Function):
    """Attention without a mask tensor in bf16 on a CPU, whose fused kernel has no fast backward pass in it.

    As in fused kernels of GPUs, attention scores and softmax are in fp32, weights and products of gradients in bf16.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Tensor:
        ctx.shape, ctx.scale = q.shape, scale
        q, k, v = (t.flatten(0, 1) for t in (q, k, v))  # (B H, L, K), (B H, M, K), (B H, M, V)
        with torch.autocast("cpu", enabled=False):
            scores = torch.bmm(q.float() * scale, k.float().mT)
        if causal:
            scores += scores.new_full(scores.shape[1:], -torch.inf).triu_(1)
        weights = scores.softmax(dim=-1).to(q.dtype)
        ctx.save_for_backward(q, k, v, weights)
        attended: Tensor = torch.bmm(weights, v).unflatten(0, ctx.shape[:2])
        return attended

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        dy = dy.flatten(0, 1)
        d_weights = torch.bmm(dy, v.mT)
        d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype).mul_(ctx.scale)
        gradients = torch.bmm(d_scores, k), torch.bmm(d_scores.mT, q), torch.bmm(weights.mT, dy)
        return *(t.unflatten(0, ctx.shape[:2]) for t in gradients), None, None


def repeat_kv(keys: Float[Tensor, "B G M K"], n_heads: int) -> Float[Tensor, "B H M K"]:
    """Keys or values repeated for every head: each of the G heads serves H/G neighboring query heads."""
    groups = keys.shape[1]
    return keys if groups == n_heads else keys.repeat_interleave(n_heads // groups, dim=1)


class Kernel(NamedTuple):
    """A function called as `fused_attention`. causal: with its `causal` no mask is made."""

    compute: Callable[..., Tensor]
    causal: bool = True


FUSED = Kernel(fused_attention)


def attend(
    q: Float[Tensor, "B H L _"],
    k: Float[Tensor, "B G M K"],
    v: Float[Tensor, "B G M V"],
    visibility: Visibility,
    scale: float,
    encoding: PositionalEncoding | None = None,
    dropout_rate: float = 0.0,
    kernel: Kernel = FUSED,
) -> Float[Tensor, "B H L V"]:
    """Fused attention; zeros for a query that attends to nothing. `encoding` may add a bias to the attention scores.

    kernel: called as `fused_attention`, with keys and values of every head.
    """
    encoding = encoding if encoding is not None and "bias" in encoding.applies_to else None
    k, v = (repeat_kv(t, q.shape[1]) for t in (k, v))  # (B, H, M, K), (B, H, M, V)
    compute = partial(kernel.compute, scale=scale, dropout_rate=dropout_rate)
    if encoding is None and (visibility.full or (visibility.triangular and kernel.causal)):
        return compute(q, k, v, None, causal=not visibility.full)
    batch = 1 if visibility.plain else q.shape[0]
    per_query = batch * k.shape[2] * (1 if encoding is None else q.shape[1])
    index = torch.arange(q.shape[2], device=q.device)
    most = MORE_ELEMENTS.get(q.device.type, MASK_ELEMENTS)
    if per_query * q.shape[2] <= most:
        return _masked(compute, q, k, v, visibility, index, encoding)
    size, parts = max(1, most // per_query), []
    for block, block_index in zip(q.split(size, dim=2), index.split(size), strict=True):
        arguments = (compute, block, k, v, visibility, block_index, encoding)
        parts.append(
            recomputed(_masked, *arguments, draws=dropout_rate > 0) if torch.is_grad_enabled() else _masked(*arguments)
        )
    return torch.cat(parts, dim=2)


def recomputed(function: Callable[..., Any], *arguments: Any, draws: bool = False) -> Any:
    """`function(*arguments)`, whose intermediate results are computed again in the backward pass.

    draws: the function draws random numbers, and the same ones again. No CUDA graph can then be captured, since torch
    reads and sets the state of the generator.
    """
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=draws)


def scores_mask(
    visibility: Visibility, index: Tensor, encoding: PositionalEncoding | None, q: Tensor, k: Tensor
) -> Tensor:
    """The mask for the queries at `index`: q (B, H, n, K..) and k (B, H, M, K) are needed by some biases.

    bool (B or 1, 1, n, M), or with a bias floats to be added to the attention scores (.., H, ..).
    """
    k_index = torch.arange(visibility.memory.length, device=q.device)
    whole = index.shape[0] == visibility.queries.length
    mask = (visibility.mask(q.device) if whole else visibility.visible(index[:, None], k_index[None]))[:, None]
    bias = (
        None
        if encoding is None
        else encoding.bias(visibility.distance(index[:, None], k_index[None]), q[..., : k.shape[-1]], k)
    )
    return mask if bias is None else bias.to(q.dtype).masked_fill(~mask, -torch.inf)


def _masked(
    kernel: Callable[..., Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visibility: Visibility,
    index: Tensor,
    encoding: PositionalEncoding | None,
) -> Tensor:
    return kernel(q, k, v, scores_mask(visibility, index, encoding, q, k))


ROTATED_AT_ONCE = frozenset({"cpu"})
"""Devices with one function for queries, keys and values, which takes half as many passes over memory."""


def rotates_at_once(x: Tensor) -> bool:
    """Whether `rotated_heads` is used for an input."""
    return x.device.type in ROTATED_AT_ONCE and not torch.compiler.is_compiling()


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

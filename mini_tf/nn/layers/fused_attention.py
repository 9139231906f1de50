"""The fused kernel of attention, for any widths and precision.

Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

ZEROS_IF_BLIND = frozenset({"cpu"})
"""Devices whose kernels give zeros, and gradients of 0, for a query that attends to nothing; those of GPUs give NaN."""


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
    blind = None
    if mask is not None and q.device.type not in ZEROS_IF_BLIND:
        visible = mask if mask.dtype == torch.bool else mask != -torch.inf
        blind = ~visible.any(dim=-1, keepdim=True)
        mask = mask | blind if mask.dtype == torch.bool else mask.masked_fill(blind, 0.0)
    # The fused kernels need d_k = d_v; zero padding changes neither attention scores nor values.
    if d_k < d_v:
        q, k = F.pad(q, (0, d_v - d_k)), F.pad(k, (0, d_v - d_k))
    elif d_v < d_k:
        v = F.pad(v, (0, d_k - d_v))
    if q.dtype == torch.bfloat16 and q.device.type == "cpu" and torch.is_grad_enabled():
        # On CPUs the backward pass of the fused kernel takes five to twenty times as long in bf16 as in fp32.
        with torch.autocast("cpu", enabled=False):
            mask = mask.float() if mask is not None and mask.dtype == torch.bfloat16 else mask
            y = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), mask, dropout_rate, causal, scale=scale).to(q.dtype)
    else:
        y = F.scaled_dot_product_attention(q, k, v, mask, dropout_rate, causal, scale=scale)
    y = y if blind is None else y.masked_fill(blind, 0.0)
    return y[..., :d_v] if d_v < d_k else y


def repeat_kv(keys: Float[Tensor, "B G M K"], n_heads: int) -> Float[Tensor, "B H M K"]:
    """Keys or values repeated for every head: each of the G heads serves H/G neighboring query heads."""
    groups = keys.shape[1]
    return keys if groups == n_heads else keys.repeat_interleave(n_heads // groups, dim=1)

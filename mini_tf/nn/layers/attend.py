"""Scaled dot-product attention, fused: softmax(q k^T * scale + bias) v under a mask, in memory linear in the length.

If the mask needs no tensor, the kernel is called without one. Otherwise a small mask is computed at once, and a large
one in blocks of queries, which are recomputed in the backward pass.
Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.token_positions import Visibility

MASK_ELEMENTS = 2**22
"""Maximum elements of a mask that is computed at once, and of a block of a larger mask."""


def attend(
    q: Float[Tensor, "B H L K"],
    k: Float[Tensor, "B G M K"],
    v: Float[Tensor, "B G M V"],
    visibility: Visibility,
    scale: float,
    encoding: PositionalEncoding | None = None,
    dropout_rate: float = 0.0,
) -> Float[Tensor, "B H L V"]:
    """Fused attention; zeros for a query that attends to nothing. `encoding` may add a bias to the attention scores."""
    encoding = encoding if encoding is not None and "bias" in encoding.applies_to else None
    k, v = (repeat_kv(t, q.shape[1]) for t in (k, v))
    if encoding is None and (visibility.full or visibility.triangular):
        return fused_attention(q, k, v, None, scale, dropout_rate, causal=not visibility.full)
    batch = 1 if visibility.plain else q.shape[0]
    per_query = batch * k.shape[2] * (1 if encoding is None else q.shape[1])
    index = torch.arange(q.shape[2], device=q.device)
    if per_query * q.shape[2] <= MASK_ELEMENTS:
        return _masked(q, k, v, visibility, index, scale, encoding, dropout_rate)
    size, parts = max(1, MASK_ELEMENTS // per_query), []
    for block, block_index in zip(q.split(size, dim=2), index.split(size), strict=True):
        arguments = (block, k, v, visibility, block_index, scale, encoding, dropout_rate)
        parts.append(checkpoint(_masked, *arguments, use_reentrant=False) if torch.is_grad_enabled() else _masked(*arguments))
    return torch.cat(parts, dim=2)


def attention_weights(
    q: Tensor, k: Tensor, visibility: Visibility, scale: float, encoding: PositionalEncoding | None = None
) -> Float[Tensor, "B H L M"]:
    """The attention weights of `attend`, for queries (B, H, L, K) and keys (B, H, M, K)."""
    mask = _scores_mask(visibility, torch.arange(q.shape[2], device=q.device), encoding, q, k)
    scores = q @ k.transpose(-1, -2) * scale  # (B,H,L,K) @ (B,H,K,M) -> (B,H,L,M)
    hidden = ~mask if mask.dtype == torch.bool else mask == -torch.inf
    scores = scores.masked_fill(hidden, -torch.inf) if mask.dtype == torch.bool else scores + mask
    # The softmax of a row that attends to nothing would be NaN, and so its gradient; its weights are 0.
    blind = hidden.all(dim=-1, keepdim=True)
    return scores.masked_fill(blind, 0.0).softmax(dim=-1).masked_fill(blind, 0.0)


def repeat_kv(keys: Float[Tensor, "B G M K"], n_heads: int) -> Float[Tensor, "B H M K"]:
    """Keys or values repeated for every head: each of the G heads serves H/G neighboring query heads."""
    groups = keys.shape[1]
    return keys if groups == n_heads else keys.repeat_interleave(n_heads // groups, dim=1)


def _scores_mask(visibility: Visibility, index: Tensor, encoding: PositionalEncoding | None, q: Tensor, k: Tensor) -> Tensor:
    """The mask for the queries at `index`: q (B, H, n, K) and k (B, H, M, K) are needed by some biases.

    bool (B or 1, 1, n, M), or with a bias floats to be added to the attention scores (.., H, ..).
    """
    k_index = torch.arange(visibility.memory.length, device=q.device)
    whole = len(index) == visibility.queries.length
    mask = (visibility.mask(q.device) if whole else visibility.visible(index[:, None], k_index[None]))[:, None]
    bias = None if encoding is None else encoding.bias(visibility.distance(index[:, None], k_index[None]), q, k)
    return mask if bias is None else bias.to(q.dtype).masked_fill(~mask, -torch.inf)


def _masked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visibility: Visibility,
    index: Tensor,
    scale: float,
    encoding: PositionalEncoding | None,
    dropout_rate: float,
) -> Tensor:
    mask = _scores_mask(visibility, index, encoding, q, k)
    return fused_attention(q, k, v, mask, scale, dropout_rate)


def fused_attention(
    q: Float[Tensor, "B H L K"],
    k: Float[Tensor, "B H M K"],
    v: Float[Tensor, "B H M V"],
    mask: Tensor | None,
    scale: float,
    dropout_rate: float,
    causal: bool = False,
) -> Float[Tensor, "B H L V"]:
    """The fused kernel under a mask: bool, True where a query attends, or floats that are added to the scores."""
    d_k, d_v = q.shape[-1], v.shape[-1]
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
    return y[..., :d_v] if d_v < d_k else y

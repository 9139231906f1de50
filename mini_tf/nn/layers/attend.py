"""Reading by softmax, fused: softmax(q k^T * scale + bias) v under a visibility, without ever holding L x M elements.

A view that needs no tensor takes the kernel's own path. Other views take a mask: whole where it is small, else in blocks of
queries whose masks are made again in the backward pass, so that memory stays linear in length.
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
"""A mask of up to so many elements is made whole; a longer view is read in blocks of about so many."""


def attend(
    q: Float[Tensor, "B H L K"],
    k: Float[Tensor, "B G M K"],
    v: Float[Tensor, "B G M V"],
    visibility: Visibility,
    scale: float,
    position: PositionalEncoding | None = None,
    dropout_rate: float = 0.0,
) -> Float[Tensor, "B H L V"]:
    """A query that sees nothing reads zeros; `position` may add a bias to the scores."""
    position = position if position is not None and "bias" in position.applies_to else None
    k, v = (repeat_kv(t, q.shape[1]) for t in (k, v))
    if position is None and (visibility.full or visibility.triangular):
        return _kernel(q, k, v, None, scale, dropout_rate, causal=not visibility.full)
    batch = 1 if visibility.plain else q.shape[0]
    per_query = batch * k.shape[2] * (1 if position is None else q.shape[1])
    index = torch.arange(q.shape[2], device=q.device)
    if per_query * q.shape[2] <= MASK_ELEMENTS:
        return _masked(q, k, v, visibility, index, scale, position, dropout_rate)
    size, parts = max(1, MASK_ELEMENTS // per_query), []
    for block, of_block in zip(q.split(size, dim=2), index.split(size), strict=True):
        arguments = (block, k, v, visibility, of_block, scale, position, dropout_rate)
        parts.append(checkpoint(_masked, *arguments, use_reentrant=False) if torch.is_grad_enabled() else _masked(*arguments))
    return torch.cat(parts, dim=2)


def attention_weights(
    q: Tensor, k: Tensor, visibility: Visibility, scale: float, position: PositionalEncoding | None = None
) -> Float[Tensor, "B H L M"]:
    """What `attend` multiplies values by, written out, for queries (B, H, L, K) and keys (B, H, M, K)."""
    mask = _scores_mask(visibility, torch.arange(q.shape[2], device=q.device), position, q, k)
    scores = q @ k.transpose(-1, -2) * scale  # (B,H,L,K) @ (B,H,K,M) -> (B,H,L,M)
    scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    # A row that sees nothing has no maximum: its softmax is not a number, its weights are 0.
    return scores.softmax(dim=-1).nan_to_num(0.0)


def repeat_kv(keys: Float[Tensor, "B G M K"], n_heads: int) -> Float[Tensor, "B H M K"]:
    """Keys or values for every head: each of the G serves H/G neighbouring heads."""
    groups = keys.shape[1]
    return keys if groups == n_heads else keys.repeat_interleave(n_heads // groups, dim=1)


def _scores_mask(visibility: Visibility, index: Tensor, position: PositionalEncoding | None, q: Tensor, k: Tensor) -> Tensor:
    """What is added to, or kept of, the scores of the queries at `index`, which are `q` (B, H, n, K), with `k` (B, H, M, K).

    bool (B or 1, 1, n, M), or floats with a bias (.., H, ..).
    """
    k_index = torch.arange(visibility.memory.length, device=q.device)
    whole = len(index) == visibility.queries.length
    keep = (visibility.mask(q.device) if whole else visibility.visible(index[:, None], k_index[None]))[:, None]
    bias = None if position is None else position.bias(visibility.distance(index[:, None], k_index[None]), q, k)
    return keep if bias is None else bias.to(q.dtype).masked_fill(~keep, -torch.inf)


def _masked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visibility: Visibility,
    index: Tensor,
    scale: float,
    position: PositionalEncoding | None,
    dropout_rate: float,
) -> Tensor:
    mask = _scores_mask(visibility, index, position, q, k)
    return _kernel(q, k, v, mask, scale, dropout_rate)


def _kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, dropout_rate: float, causal: bool = False) -> Tensor:
    d_k, d_v = q.shape[-1], v.shape[-1]
    # The fused kernels want equal widths; zeros on the narrower side change no score and no value.
    if d_k < d_v:
        q, k = F.pad(q, (0, d_v - d_k)), F.pad(k, (0, d_v - d_k))
    elif d_v < d_k:
        v = F.pad(v, (0, d_k - d_v))
    if q.dtype == torch.bfloat16 and q.device.type == "cpu" and torch.is_grad_enabled():
        # There the backward pass of the fused kernel takes five to twenty times as long as that of fp32.
        with torch.autocast("cpu", enabled=False):
            mask = mask.float() if mask is not None and mask.dtype == torch.bfloat16 else mask
            read = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), mask, dropout_rate, causal, scale=scale).to(q.dtype)
    else:
        read = F.scaled_dot_product_attention(q, k, v, mask, dropout_rate, causal, scale=scale)
    return read[..., :d_v] if d_v < d_k else read

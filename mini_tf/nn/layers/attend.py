"""Scaled dot-product attention, fused: softmax(q k^T * scale + bias) v under a mask, in memory linear in the length.

If the mask needs no tensor, the kernel is called without one. Otherwise a small mask is computed at once, and a large
one in blocks of queries, which are recomputed in the backward pass.
Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mini_tf.nn.layers.fused_attention import fused_attention, repeat_kv
from mini_tf.nn.layers.persistent_attention import KeysValues, keys_of_heads, merges, persistent_attention
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.token_positions import Visibility

MASK_ELEMENTS = 2**22
"""Maximum elements of a mask that is computed at once, and of a block of a larger mask."""


def attend(
    q: Float[Tensor, "B H L _"],
    k: Float[Tensor, "B G M K"],
    v: Float[Tensor, "B G M V"],
    visibility: Visibility,
    scale: float,
    encoding: PositionalEncoding | None = None,
    dropout_rate: float = 0.0,
    persistent: KeysValues | None = None,
) -> Float[Tensor, "B H L V"]:
    """Fused attention; zeros for a query that attends to nothing. `encoding` may add a bias to the attention scores.

    persistent: keys (G, N, K) and values (G, N, V) beside those of tokens, which all queries attend to without a bias.
    q is (B, H, L, K), or (B, H, L, 2 K): then the second half is compared with persistent keys.
    """
    encoding = encoding if encoding is not None and "bias" in encoding.applies_to else None
    k, v = (repeat_kv(t, q.shape[1]) for t in (k, v))
    kernel: Callable[..., Tensor] = partial(fused_attention, scale=scale, dropout_rate=dropout_rate)
    if persistent is not None:
        shared = keys_of_heads(persistent, q)
        kernel = partial(persistent_attention, shared=shared, scale=scale, dropout_rate=dropout_rate)
    # With dropout, or elsewhere than on a CPU, persistent keys need a mask, which may have to be split.
    maskless = visibility.full or (visibility.triangular and (persistent is None or merges(q, dropout_rate)))
    if encoding is None and maskless:
        return kernel(q, k, v, None, causal=not visibility.full)
    batch = 1 if visibility.plain else q.shape[0]
    per_query = batch * k.shape[2] * (1 if encoding is None else q.shape[1])
    index = torch.arange(q.shape[2], device=q.device)
    if per_query * q.shape[2] <= MASK_ELEMENTS:
        return _masked(kernel, q, k, v, visibility, index, encoding)
    size, parts = max(1, MASK_ELEMENTS // per_query), []
    for block, block_index in zip(q.split(size, dim=2), index.split(size), strict=True):
        arguments = (kernel, block, k, v, visibility, block_index, encoding)
        parts.append(checkpoint(_masked, *arguments, use_reentrant=False) if torch.is_grad_enabled() else _masked(*arguments))
    return torch.cat(parts, dim=2)


def attention_weights(
    q: Tensor,
    k: Tensor,
    visibility: Visibility,
    scale: float,
    encoding: PositionalEncoding | None = None,
    persistent: KeysValues | None = None,
) -> Float[Tensor, "B H L _"]:
    """The attention weights (B, H, L, N + M) of `attend`, for queries (B, H, L, K) and keys (B, H, M, K)."""
    mask = _scores_mask(visibility, torch.arange(q.shape[2], device=q.device), encoding, q, k)
    d_k = k.shape[-1]
    scores = q[..., :d_k] @ k.transpose(-1, -2) * scale  # (B,H,L,K) @ (B,H,K,M) -> (B,H,L,M)
    hidden = ~mask if mask.dtype == torch.bool else mask == -torch.inf
    scores = scores.masked_fill(hidden, -torch.inf) if mask.dtype == torch.bool else scores + mask
    if persistent is not None:
        keys, _ = keys_of_heads(persistent, q)
        return torch.cat([q[..., -d_k:] @ keys.transpose(-1, -2) * scale, scores], dim=-1).softmax(dim=-1)
    # The softmax of a row that attends to nothing would be NaN, and so its gradient; its weights are 0.
    blind = hidden.all(dim=-1, keepdim=True)
    return scores.masked_fill(blind, 0.0).softmax(dim=-1).masked_fill(blind, 0.0)


def _scores_mask(visibility: Visibility, index: Tensor, encoding: PositionalEncoding | None, q: Tensor, k: Tensor) -> Tensor:
    """The mask for the queries at `index`: q (B, H, n, K..) and k (B, H, M, K) are needed by some biases.

    bool (B or 1, 1, n, M), or with a bias floats to be added to the attention scores (.., H, ..).
    """
    k_index = torch.arange(visibility.memory.length, device=q.device)
    whole = len(index) == visibility.queries.length
    mask = (visibility.mask(q.device) if whole else visibility.visible(index[:, None], k_index[None]))[:, None]
    bias = None if encoding is None else encoding.bias(visibility.distance(index[:, None], k_index[None]), q[..., : k.shape[-1]], k)
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
    return kernel(q, k, v, _scores_mask(visibility, index, encoding, q, k))

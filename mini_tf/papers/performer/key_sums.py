"""Linear attention: weights phi(q) . phi(k) / sum of them, without the L x L matrix; time and memory O(L).

Keys are summed in chunks. A query reads the keys of its own chunk one by one under the mask, and those of the other
chunks from sums of phi(k) v^T. A feature vector is stored as `values * exp(log_scale)`, and every sum relative to the
largest log_scale among the keys that its query attends to, as in online softmax. So large exponents do not overflow,
and no query depends on a key that it does not attend to, not even through rounding.
Source: Katharopoulos et al. 2020, arXiv:2006.16236; Choromanski et al. 2021, arXiv:2009.14794, section 2.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mini_tf.nn.token_positions import TokenPositions, Visibility

CHUNK = 64
"""Tokens per chunk."""
NONE = -1e30
"""Log-scale of a sum without keys: finite, so that differences are."""
FLOOR = 1e-20
"""Smallest absolute value of the sum of a query's weights."""


class Features(NamedTuple):
    """Feature vectors `values` (B, H, L, F) * exp(`log_scale` (B, H, L)); log_scale has no gradient."""

    values: Tensor
    log_scale: Tensor


class KeySums(NamedTuple):
    """Sums over keys of one document per row, relative to exp(log_scale).

    sums (B, H, F, V + 1): of phi(k) v^T, and in the last column of phi(k); log_scale (B, H); segment (B,): the
    document, 0 before the first.
    """

    sums: Tensor
    log_scale: Tensor
    segment: Tensor

    @classmethod
    def empty(cls, batch: int, n_heads: int, n_features: int, d_v: int, like: Tensor) -> "KeySums":
        sums = like.new_zeros(batch, n_heads, n_features, d_v + 1)
        return cls(
            sums, like.new_full((batch, n_heads), NONE), torch.zeros(batch, dtype=torch.long, device=like.device)
        )


def add_key(
    before: KeySums, k: Float[Tensor, "B H 1 F"], v: Float[Tensor, "B H 1 V"], key_scale: Float[Tensor, "B H 1 1"]
) -> KeySums:
    """The sums with one key more, in place; its features are `k` * exp(`key_scale`)."""
    scale = torch.maximum(before.log_scale, key_scale[..., 0, 0])
    k = k * (key_scale - scale[..., None, None]).exp()
    before.sums.mul_((before.log_scale - scale).exp()[..., None, None]).add_(k.transpose(-1, -2) * _with_ones(v))
    before.log_scale.copy_(scale)
    return before


def linear_attention(
    q: Float[Tensor, "B H L F"],
    k: Features,
    v: Float[Tensor, "B H L V"],
    visibility: Visibility,
    before: KeySums | None = None,
) -> tuple[Float[Tensor, "B H L V"], KeySums | None]:
    """Self-attention of a block of tokens that follows the keys summed in `before`; also the sums after the block.

    q: query features, whose scale cancels. Documents must be contiguous, and orders must not fall within a document.
    Zeros for a query that attends to nothing.
    """
    batch, _, length, _ = q.shape
    size = min(CHUNK, length)
    n = -(-length // size)
    q, k_values, v = (
        F.pad(t, (0, 0, 0, n * size - length)).unflatten(2, (n, size)) for t in (q, k.values, _with_ones(v))
    )
    k = Features(k_values, F.pad(k.log_scale, (0, n * size - length), value=NONE).unflatten(2, (n, size)))
    index = torch.arange(n * size, device=q.device).view(n, size)
    mask = visibility.visible(index[:, :, None], index[:, None, :])[:, None]  # (B or 1, 1, n, C, C)
    key_scale = k.log_scale[..., None, :].masked_fill(~mask, NONE)
    segments = F.pad(visibility.queries.tensors(batch, q.device)[0], (0, n * size - length)).unflatten(1, (n, size))
    parts, after = [], None
    if n > 1 or before is not None:
        start = before or KeySums.empty(batch, q.shape[1], q.shape[4], v.shape[4] - 1, v)
        earlier, after = _scan(k, v, segments, start)
        parts.append((earlier, segments))
    if n > 1 and (groups := _later_groups(visibility, segments, length)) is not None:
        parts.append((_scan_backwards(k, v, groups), groups))
    scales = [
        earlier.log_scale[..., None].masked_fill((groups != earlier.segment[..., None])[:, None], NONE)
        for earlier, groups in parts
    ]
    scale = key_scale.amax(-1)  # of each query: (B, H, n, C)
    for chunk_scale in scales:
        scale = torch.maximum(scale, chunk_scale)
    weights = (q @ k.values.transpose(-1, -2)) * (key_scale - scale[..., None]).exp().masked_fill(~mask, 0.0)
    sums = weights @ v
    for (earlier, _), chunk_scale in zip(parts, scales, strict=True):
        factor = (chunk_scale - scale).exp().masked_fill(chunk_scale == NONE, 0.0)
        sums = sums + (q * factor[..., None]) @ earlier.sums
    return _divide(sums.flatten(2, 3)[:, :, :length]), after


def linear_weights(q: Float[Tensor, "B H L F"], k: Features, visibility: Visibility) -> Float[Tensor, "B H L M"]:
    """The attention weights, 0 where a query does not attend."""
    mask = visibility.mask(q.device)[:, None]
    key_scale = k.log_scale[..., None, :].masked_fill(~mask, NONE)
    weights = (q @ k.values.transpose(-1, -2)) * (key_scale - key_scale.amax(-1, keepdim=True)).exp().masked_fill(
        ~mask, 0.0
    )
    return weights / _floored(weights.sum(-1, keepdim=True))


def sum_sources(k: Features, v: Float[Tensor, "B H M V"], token_positions: TokenPositions) -> Tensor:
    """Cross-attention: sums (B, H, S, F, V + 1) over the keys of each of the S documents, up to a factor for each."""
    segments, n_documents = token_positions.segments, 1
    if segments is None:
        segments = torch.ones(1, v.shape[2], dtype=torch.long, device=v.device)
    else:
        # Reading the number would wait for a GPU, and would end a compiled graph.
        unread = token_positions.max_segment if v.device.type != "cpu" or torch.compiler.is_compiling() else None
        n_documents = unread or max(1, int(segments.max()))
    sums, v = [], _with_ones(v)
    for document in range(1, 1 + n_documents):
        inside = (segments == document)[:, None]
        key_scale = k.log_scale.masked_fill(~inside, NONE)
        weights = (key_scale - key_scale.amax(-1, keepdim=True)).exp().masked_fill(~inside, 0.0)
        sums.append((k.values * weights[..., None]).transpose(-1, -2) @ v)
    return torch.stack(sums, dim=2)


def attend_to_sums(
    q: Float[Tensor, "B H L F"], sums: Tensor, queries: TokenPositions | None = None
) -> Float[Tensor, "B H L V"]:
    """Attention to sums (B, H, S, F, V + 1) of S documents; with segments a query attends to its own document."""
    attended = q @ sums[:, :, 0]
    if queries is not None and queries.segments is not None:
        for document in range(sums.shape[2]):
            inside = (queries.segments == document + 1)[:, None, :, None]
            attended = torch.where(inside, q @ sums[:, :, document], 0.0 if document == 0 else attended)
    return _divide(attended)


def _scan(k: Features, v: Tensor, groups: Tensor, start: KeySums) -> tuple[KeySums, KeySums]:
    """For each chunk the sums over the chunks before it, stacked, and the sums after the last chunk.

    k (B, H, n, C, F) and v (B, H, n, C, V + 1); groups (B, n, C): sums restart where this number changes; 0: padding.
    """
    last = torch.cat([start.segment[:, None], groups.flatten(1)], dim=1)
    index = torch.where(last != 0, torch.arange(last.shape[1], device=last.device), 0).cummax(dim=1).values
    segment = last.gather(1, index)[:, :: groups.shape[2]]  # before each chunk, and after the last: (B, n + 1)
    inside = ((groups == segment[:, 1:, None]) & (groups != 0))[:, None]
    key_scale = k.log_scale.masked_fill(~inside, NONE)
    chunk_scale = key_scale.amax(-1)
    weights = (key_scale - chunk_scale[..., None]).exp().masked_fill(~inside, 0.0)
    chunk_sums = (k.values * weights[..., None]).transpose(-1, -2) @ v  # (B, H, n, F, V + 1)
    same = (segment[:, 1:] == segment[:, :-1])[:, None]
    sums, scales = [start.sums], [start.log_scale]
    for i in range(groups.shape[1]):
        before = scales[-1].masked_fill(~same[..., i], NONE)
        scale = torch.maximum(before, chunk_scale[:, :, i])
        keep = (before - scale).exp().masked_fill(~same[..., i], 0.0)[..., None, None]
        sums.append(sums[-1] * keep + chunk_sums[:, :, i] * (chunk_scale[:, :, i] - scale).exp()[..., None, None])
        scales.append(scale)
    after = KeySums(sums.pop(), scales.pop(), segment[:, -1])
    return KeySums(torch.stack(sums, dim=2), torch.stack(scales, dim=2), segment[:, :-1]), after


def _scan_backwards(k: Features, v: Tensor, groups: Tensor) -> KeySums:
    """For each chunk the sums over the chunks after it."""
    turned = Features(k.values.flip(2, 3), k.log_scale.flip(2, 3))
    start = KeySums.empty(v.shape[0], v.shape[1], k.values.shape[4], v.shape[4] - 1, v)
    later, _ = _scan(turned, v.flip(2, 3), groups.flip(1, 2), start)
    return KeySums(later.sums.flip(2), later.log_scale.flip(2), later.segment.flip(1))


def _later_groups(visibility: Visibility, segments: Tensor, length: int) -> Tensor | None:
    """Tokens of equal number attend to each other in both directions (B, n, C); None if none do.

    Bidirectional: those of a document; a prefix before causal text: those of equal order as well.
    """
    if not visibility.causal:
        return segments
    orders = visibility.queries.orders
    if orders is None:
        return None
    orders = F.pad(orders, (0, segments[0].numel() - length)).view_as(segments)
    return torch.where(segments == 0, 0, (segments.long() << 32) + orders)


def _with_ones(v: Tensor) -> Tensor:
    return F.pad(v, (0, 1), value=1.0)


def _divide(sums: Tensor) -> Tensor:
    return sums[..., :-1] / _floored(sums[..., -1:])


def _floored(total: Tensor) -> Tensor:
    """`total`, but at least FLOOR away from 0; it is negative only for features that may be."""
    return torch.where(total.abs() < FLOOR, torch.where(total < 0, -FLOOR, FLOOR), total)

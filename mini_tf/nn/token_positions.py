"""Token positions and segments, and the attention mask that they define.

Causal masks, document boundaries, padding, windows and relative distances are all comparisons of positions, so every
mixer uses one function, `Visibility.visible`: the dense mask, the blocks of a window and chunks of queries call it
with different index tensors. A tensor of size (L, M) is made only by `mask`, and once per forward pass of a stack.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from mini_tf.nn.state import State

POSITIONS_KEY = "places"
"""Key of a mixer's state that holds the positions of the cached keys. Checkpoints contain it, so it cannot change."""

SPAN = 2048
"""Tokens of a long causal row that are processed at once: the allocator returns tensors above 32 MiB to the system, and
getting them back, page by page, would cost several times as much as the arithmetic."""


def spans(length: int, multiple: int = 1) -> Iterator[slice]:
    """A row of `length` tokens in spans of at most SPAN tokens, a multiple of `multiple`, but at least two of these."""
    size = multiple * max(2, SPAN // multiple)
    return (slice(first, min(length, first + size)) for first in range(0, length, size))


@dataclass(frozen=True, eq=False)
class TokenPositions:
    """Positions of `length` tokens in every row of a batch.

    segments (B, length): segment ids; 0 is padding, equal ids are one document; None: one document per row.
    positions (B, length): position ids within the document; None: start, start + 1, ... in every row.
    orders (B, length): order of a token in the causal mask, which attends to tokens of the same and of lower order;
    None: the positions. The tokens of a prefix all have the order of its last token, so they attend to each other.
    max_segment: no segment id is larger, known without reading the tensor; None: unknown.
    """

    length: int
    start: int = 0
    segments: Tensor | None = None
    positions: Tensor | None = None
    orders: Tensor | None = None
    max_segment: int | None = None

    @classmethod
    def packed(cls, segments: Tensor) -> "TokenPositions":
        """Positions of rows that hold several documents: position ids count from 0 in each run of equal segment ids."""
        length = segments.shape[1]
        index = torch.arange(length, device=segments.device).expand_as(segments)
        starts = torch.ones_like(segments, dtype=torch.bool)
        starts[:, 1:] = segments[:, 1:] != segments[:, :-1]
        first = torch.where(starts, index, torch.zeros_like(index)).cummax(dim=1).values
        # A power of two, so that few numbers occur, of which each may be compiled. A GPU would have to be waited for.
        known = segments.device.type == "cpu" and segments.numel() > 0
        return cls(
            length, 0, segments, index - first, max_segment=1 << int(segments.max() - 1).bit_length() if known else None
        )

    @classmethod
    def of_mask(cls, mask: Tensor) -> "TokenPositions":
        """Positions of one document per row (B, length), 0 at padding, which may stand on either side."""
        return cls(mask.shape[1], 0, mask, (mask.cumsum(1) - 1).clamp(min=0))

    @property
    def plain(self) -> bool:
        """True if there are no tensors: one unpadded document per row, positions counted from `start`."""
        return self.segments is None and self.positions is None and self.orders is None

    def positions_at(self, index: Tensor) -> Tensor:
        """Positions of the tokens at `index` (any shape): (B or 1, *index.shape)."""
        return (index + self.start)[None] if self.positions is None else self.positions[:, index]

    def orders_at(self, index: Tensor) -> Tensor:
        """Orders of the tokens at `index` (any shape): (B or 1, *index.shape)."""
        return self.positions_at(index) if self.orders is None else self.orders[:, index]

    def all_positions(self, device: torch.device) -> Tensor:
        """Positions of all tokens: (B or 1, length)."""
        if self.positions is not None:
            return self.positions
        return torch.arange(self.start, self.start + self.length, device=device)[None]

    def concat(self, other: "TokenPositions", batch: int, device: torch.device) -> "TokenPositions":
        """These positions followed by `other`, as in a growing KV cache."""
        if self.length == 0:
            return other
        if self.plain and other.plain and other.start == self.start + self.length:
            return TokenPositions(self.length + other.length, self.start)
        both = (self, other)
        segments, positions = (
            torch.cat(parts, dim=1) for parts in zip(*(part.tensors(batch, device) for part in both), strict=True)
        )
        orders = None
        if any(part.orders is not None for part in both):
            orders = torch.cat(
                [part.orders_at(torch.arange(part.length, device=device)).expand(batch, -1) for part in both], dim=1
            )
        return TokenPositions(self.length + other.length, 0, segments, positions, orders)

    def tensors(self, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Segments and positions as two tensors (batch, length)."""
        segments = self.segments
        if segments is None:
            segments = torch.ones(batch, self.length, dtype=torch.long, device=device)
        return segments, self.all_positions(device).expand(batch, -1)

    def last(self, n: int) -> "TokenPositions":
        """The positions of the last `n` tokens, or of all if there are fewer."""
        return self if n >= self.length else self.slice(self.length - n, self.length)

    def slice(self, first: int, last: int) -> "TokenPositions":
        """The positions of tokens first..last-1."""
        return self.each(lambda t: t[:, first:last], length=last - first, start=self.start + first)

    def select(self, rows: Tensor) -> "TokenPositions":
        """Row i of the result is row `rows[i]`."""
        return self.each(lambda t: t.index_select(0, rows.to(t.device)))

    def merge_rows(self, batch: int, n: int, device: torch.device) -> "TokenPositions":
        """The positions after `n` neighboring rows are concatenated into one: `batch` rows become batch / n."""
        if self.plain:
            return TokenPositions(n * self.length, positions=self.all_positions(device).repeat(batch // n, n))
        segments, positions = self.tensors(batch, device)
        explicit = TokenPositions(self.length, 0, segments, positions, self.orders)
        return explicit.each(lambda t: t.reshape(batch // n, -1), length=n * self.length)

    def with_prefix(self, lengths: Tensor) -> "TokenPositions":
        """The same positions, where the first `lengths` (B,) tokens of a document attend to each other (prefix LM).

        Later tokens attend to the prefix, and the prefix does not attend to them.
        """
        positions = self.all_positions(lengths.device).expand(len(lengths), -1)
        return replace(self, orders=torch.maximum(positions, lengths[:, None] - 1))

    def to(self, device: torch.device) -> "TokenPositions":
        return self.each(lambda t: t.to(device, non_blocking=True))

    def to_state(self) -> State:
        """As part of a state (`POSITIONS_KEY`)."""
        return {"start": self.start} | {name: t for name in _TENSORS if (t := getattr(self, name)) is not None}

    @classmethod
    def of_state(cls, part: State, length: int) -> "TokenPositions":
        """The inverse of `to_state`, for `length` tokens."""
        return cls(length, part["start"], *(part.get(name) for name in _TENSORS))

    def each(self, change: Callable[[Tensor], Tensor], **sizes: Any) -> "TokenPositions":
        """A copy with `change` applied to every tensor."""
        changed: dict[str, Any] = {name: change(t) for name in _TENSORS if (t := getattr(self, name)) is not None}
        return replace(self, **sizes, **changed)


_TENSORS = ("segments", "positions", "orders")


@dataclass(frozen=True, eq=False)
class Visibility:
    """The attention mask, computed on demand: which tokens of `memory` (the keys) the `queries` may attend to.

    A query attends only to tokens of its own document and never to padding; if `causal`, only to tokens of its own or a
    lower order; with a `window`, only to tokens at most `window` positions away; without `attends_self`, not to its own
    position. Padding attends to nothing. rows_per_source: rows that are concatenated in one row of `queries`, as they
    share a source (`TokenPositions.merge_rows`).
    """

    causal: bool
    queries: TokenPositions
    memory: TokenPositions
    window: int | None = None
    attends_self: bool = True
    rows_per_source: int = 1
    _limited: dict[tuple[int | None, bool], "Visibility"] = field(default_factory=dict, init=False)
    _masks: dict[torch.device, Tensor] = field(default_factory=dict, init=False)

    @property
    def plain(self) -> bool:
        """True if queries and memory have no tensors: one unpadded document per row."""
        return self.queries.plain and self.memory.plain

    @property
    def triangular(self) -> bool:
        """True if the mask is the plain causal square, which fused kernels compute without a mask (`is_causal`)."""
        same = self.queries.start == self.memory.start and self.queries.length == self.memory.length
        return self.causal and self.plain and same and self.attends_self and not self.windowed

    @property
    def full(self) -> bool:
        """True if no mask is needed: not causal, or one query at or after the last key."""
        last = self.memory.start + self.memory.length - 1
        return (
            self.plain and self.attends_self and not self.windowed and (not self.causal or self.queries.start >= last)
        )

    @property
    def windowed(self) -> bool:
        """True if the window may exclude keys."""
        if self.window is None:
            return False
        return (
            not self.plain
            or max(self.queries.start + self.queries.length, self.memory.start + self.memory.length) > self.window + 1
        )

    def span(self, queries: slice, memory: slice) -> "Visibility":
        """The mask of some of the queries and some of the keys."""
        parts = self.queries.slice(queries.start, queries.stop), self.memory.slice(memory.start, memory.stop)
        return replace(self, queries=parts[0], memory=parts[1])

    def with_cache(self, cached: TokenPositions, batch: int, device: torch.device) -> "Visibility":
        """The same mask with cached keys in front of the memory."""
        return self if cached.length == 0 else replace(self, memory=cached.concat(self.memory, batch, device))

    def with_window(self, window: int) -> "Visibility":
        """The same mask, limited to a window; built once for all layers."""
        return self._limit(window, self.attends_self)

    def without_self(self) -> "Visibility":
        """The same mask without each token's own position; built once for all layers."""
        return self._limit(self.window, False)

    def _limit(self, window: int | None, attends_self: bool) -> "Visibility":
        if (window, attends_self) not in self._limited:
            self._limited[window, attends_self] = replace(self, window=window, attends_self=attends_self)
        return self._limited[window, attends_self]

    def visible(self, q_index: Tensor, k_index: Tensor) -> Tensor:
        """True if query `q_index` attends to key `k_index`; the two broadcast: (B or 1, *their shape).

        False for an index out of range, so blocks may extend beyond the sequence.
        """
        inside = (k_index >= 0) & (k_index < self.memory.length) & (q_index >= 0) & (q_index < self.queries.length)
        q_index, k_index = q_index.clamp(0, self.queries.length - 1), k_index.clamp(0, self.memory.length - 1)
        visible = inside[None]
        if self.causal:
            visible = visible & (self.queries.orders_at(q_index) >= self.memory.orders_at(k_index))
        if self.window is not None:
            visible = visible & (self.distance(q_index, k_index).abs() <= self.window)
        if not self.attends_self:
            visible = visible & (self.distance(q_index, k_index) != 0)
        if self.queries.segments is not None or self.memory.segments is not None:
            q_segment, k_segment = (
                token_positions.segments[:, index]
                if token_positions.segments is not None
                else torch.ones_like(index)[None]
                for token_positions, index in ((self.queries, q_index), (self.memory, k_index))
            )
            visible = visible & (q_segment == k_segment) & (k_segment != 0)
        return visible

    def distance(self, q_index: Tensor, k_index: Tensor) -> Tensor:
        """Query position minus key position, negative for keys ahead: (B or 1, *shape of the broadcast indices)."""
        q_index, k_index = q_index.clamp(0, self.queries.length - 1), k_index.clamp(0, self.memory.length - 1)
        return self.queries.positions_at(q_index) - self.memory.positions_at(k_index)

    def mask_rows(self, first: int, last: int, device: torch.device) -> Tensor:
        """Rows first..last-1 of the mask: (B or 1, last - first, M)."""
        index = torch.arange(first, last, device=device)
        return self.visible(index[:, None], torch.arange(self.memory.length, device=device)[None])

    def mask(self, device: torch.device) -> Tensor:
        """The boolean mask (B or 1, L, M), True where a query attends; computed once for all layers."""
        if device not in self._masks:
            self._masks[device] = self.mask_rows(0, self.queries.length, device)
        return self._masks[device]

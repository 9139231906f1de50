"""Where tokens stand, and who may see whom.

Causality, document borders, padding, windows and relative distance are all comparisons of positions, so one primitive,
`Visibility.keep`, serves every mixer: a window's slab, a chunk and the dense mask are `keep` on other index tensors.
Nothing of size (L, M) is made unless `mask` is asked for, and then once for a whole pass through a stack.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from mini_tf.nn.state import State

POSITIONS_KEY = "places"
"""The key of a mixer's state that holds the positions of its keys; checkpoints of streams contain it, so it stays as it was named."""


@dataclass(frozen=True, eq=False)
class TokenPositions:
    """Where each of `length` tokens of one side stands.

    segments (B, length): 0 is padding, equal numbers are one document; None means one document for every row.
    positions (B, length): the place within the document; None means start, start + 1, ... in every row.
    orders (B, length): what causality compares: a token attends to tokens of its own order and of lower ones; None means
    the positions. A prefix whose tokens all have the order of its last one is attended to in both directions.
    """

    length: int
    start: int = 0
    segments: Tensor | None = None
    positions: Tensor | None = None
    orders: Tensor | None = None

    @classmethod
    def packed(cls, segments: Tensor) -> "TokenPositions":
        """Positions of rows that hold several documents, whose positions count from 0 within each run of equal numbers."""
        length = segments.shape[1]
        index = torch.arange(length, device=segments.device).expand_as(segments)
        opens = torch.ones_like(segments, dtype=torch.bool)
        opens[:, 1:] = segments[:, 1:] != segments[:, :-1]
        first = torch.where(opens, index, torch.zeros_like(index)).cummax(dim=1).values
        return cls(length, 0, segments, index - first)

    @property
    def plain(self) -> bool:
        """True where no tensor is needed to know the token_positions: one unpadded document a row, counted from `start`."""
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
        """These positions followed by `other`, as a memory that grows."""
        if self.length == 0:
            return other
        if self.plain and other.plain and other.start == self.start + self.length:
            return TokenPositions(self.length + other.length, self.start)
        both = (self, other)
        segments, positions = (torch.cat(parts, dim=1) for parts in zip(*(one.tensors(batch, device) for one in both), strict=True))
        orders = None
        if any(one.orders is not None for one in both):
            orders = torch.cat([one.orders_at(torch.arange(one.length, device=device)).expand(batch, -1) for one in both], dim=1)
        return TokenPositions(self.length + other.length, 0, segments, positions, orders)

    def tensors(self, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Segments and positions written out: two tensors (batch, length)."""
        segments = self.segments
        if segments is None:
            segments = torch.ones(batch, self.length, dtype=torch.long, device=device)
        return segments, self.all_positions(device).expand(batch, -1)

    def last(self, n: int) -> "TokenPositions":
        """The last `n` positions, or all of them where there are fewer."""
        return self if n >= self.length else self.slice(self.length - n, self.length)

    def slice(self, first: int, last: int) -> "TokenPositions":
        """The positions of tokens first..last-1."""
        return self._each(lambda t: t[:, first:last], length=last - first, start=self.start + first)

    def select(self, rows: Tensor) -> "TokenPositions":
        """Row i becomes what row `rows[i]` was."""
        return self._each(lambda t: t.index_select(0, rows.to(t.device)))

    def merge_rows(self, batch: int, n: int, device: torch.device) -> "TokenPositions":
        """Those of `batch` rows where `n` neighbouring ones become one row, its tokens behind each other."""
        if self.plain:
            return TokenPositions(n * self.length, positions=self.all_positions(device).repeat(batch // n, n))
        segments, positions = self.tensors(batch, device)
        whole = TokenPositions(self.length, 0, segments, positions, self.orders)
        return whole._each(lambda t: t.reshape(batch // n, -1), length=n * self.length)

    def with_prefix(self, lengths: Tensor) -> "TokenPositions":
        """The same for rows that begin with a prefix: the first `lengths` (B,) tokens of a document all see each other.

        What follows sees them, and they do not see it.
        """
        positions = self.all_positions(lengths.device).expand(len(lengths), -1)
        return replace(self, orders=torch.maximum(positions, lengths[:, None] - 1))

    def to(self, device: torch.device) -> "TokenPositions":
        return self._each(lambda t: t.to(device, non_blocking=True))

    def to_state(self) -> State:
        """As a part of a state."""
        return {"start": self.start} | {name: t for name in _TENSORS if (t := getattr(self, name)) is not None}

    @classmethod
    def of_state(cls, part: State, length: int) -> "TokenPositions":
        """The inverse of `to_state`, for `length` tokens."""
        return cls(length, part["start"], *(part.get(name) for name in _TENSORS))

    def _each(self, change: Callable[[Tensor], Tensor], **sizes: Any) -> "TokenPositions":
        """The same with every tensor changed."""
        changed: dict[str, Any] = {name: change(t) for name in _TENSORS if (t := getattr(self, name)) is not None}
        return replace(self, **sizes, **changed)


_TENSORS = ("segments", "positions", "orders")


@dataclass(frozen=True, eq=False)
class Visibility:
    """Which tokens of `memory` the tokens of `own` may attend to.

    A token sees its own document only, nothing that is padding, if `causal` nothing of a higher order than its own, with a
    `window` nothing that stands farther away than so many tokens, and without `attends_self` not the token at its own position.
    Pads see nothing.
    """

    causal: bool
    queries: TokenPositions
    memory: TokenPositions
    window: int | None = None
    attends_self: bool = True
    _limited: dict[tuple[int | None, bool], "Visibility"] = field(default_factory=dict, init=False)
    _masks: dict[torch.device, Tensor] = field(default_factory=dict, init=False)

    @property
    def plain(self) -> bool:
        """True where both sides are one unpadded document a row, so that no tensor of positions takes part."""
        return self.queries.plain and self.memory.plain

    @property
    def triangular(self) -> bool:
        """True for the plain causal square, which fused kernels know by themselves."""
        same = self.queries.start == self.memory.start and self.queries.length == self.memory.length
        return self.causal and self.plain and same and self.attends_self and not self.windowed

    @property
    def full(self) -> bool:
        """True where everybody sees everything: not causal, or one query that stands at or after the end of memory."""
        last = self.memory.start + self.memory.length - 1
        return self.plain and self.attends_self and not self.windowed and (not self.causal or self.queries.start >= last)

    @property
    def windowed(self) -> bool:
        """True where the window is what limits the view."""
        if self.window is None:
            return False
        return not self.plain or max(self.queries.start + self.queries.length, self.memory.start + self.memory.length) > self.window + 1

    def with_cache(self, kept: TokenPositions, batch: int, device: torch.device) -> "Visibility":
        """The same view where memory begins with what a state has kept."""
        return self if kept.length == 0 else replace(self, memory=kept.concat(self.memory, batch, device))

    def with_window(self, window: int) -> "Visibility":
        """The same view through a window; made once however many layers ask for it."""
        return self._limit(window, self.attends_self)

    def without_self(self) -> "Visibility":
        """The same view, in which no token sees itself; made once however many layers ask for it."""
        return self._limit(self.window, False)

    def _limit(self, window: int | None, attends_self: bool) -> "Visibility":
        if (window, attends_self) not in self._limited:
            self._limited[window, attends_self] = replace(self, window=window, attends_self=attends_self)
        return self._limited[window, attends_self]

    def visible(self, q_index: Tensor, k_index: Tensor) -> Tensor:
        """True where query token `q_index` sees memory token `k_index`; the two broadcast: (B or 1, *their shape).

        An index outside its side is seen by nobody, so slabs may reach over the edge.
        """
        inside = (k_index >= 0) & (k_index < self.memory.length) & (q_index >= 0) & (q_index < self.queries.length)
        q_index, k_index = q_index.clamp(0, self.queries.length - 1), k_index.clamp(0, self.memory.length - 1)
        seen = inside[None]
        if self.causal:
            seen = seen & (self.queries.orders_at(q_index) >= self.memory.orders_at(k_index))
        if self.window is not None:
            seen = seen & (self.distance(q_index, k_index).abs() <= self.window)
        if not self.attends_self:
            seen = seen & (self.distance(q_index, k_index) != 0)
        if self.queries.segments is not None or self.memory.segments is not None:
            q_segment, k_segment = (
                token_positions.segments[:, index] if token_positions.segments is not None else torch.ones_like(index)[None]
                for token_positions, index in ((self.queries, q_index), (self.memory, k_index))
            )
            seen = seen & (q_segment == k_segment) & (k_segment != 0)
        return seen

    def distance(self, q_index: Tensor, k_index: Tensor) -> Tensor:
        """How far back memory token `k_index` stands from query token `q_index`: (B or 1, *their shape); negative is ahead."""
        q_index, k_index = q_index.clamp(0, self.queries.length - 1), k_index.clamp(0, self.memory.length - 1)
        return self.queries.positions_at(q_index) - self.memory.positions_at(k_index)

    def mask_rows(self, first: int, last: int, device: torch.device) -> Tensor:
        """`keep` for queries first..last-1 against the whole memory: (B or 1, last - first, M)."""
        index = torch.arange(first, last, device=device)
        return self.visible(index[:, None], torch.arange(self.memory.length, device=device)[None])

    def mask(self, device: torch.device) -> Tensor:
        """The dense mask (B or 1, L, M), made once however many layers ask for it."""
        if device not in self._masks:
            self._masks[device] = self.mask_rows(0, self.queries.length, device)
        return self._masks[device]

"""Where tokens stand, and who may see whom.

Causality, document borders, padding, windows and relative distance are all comparisons of places, so one primitive,
`Visibility.keep`, serves every mixer: a window's slab, a chunk and the dense mask are `keep` on other index tensors.
Nothing of size (L, M) is made unless `mask` is asked for, and then once for a whole pass through a stack.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Places:
    """Where each of `length` tokens of one side stands.

    segments (B, length): 0 is padding, equal numbers are one document; None means one document for every row.
    positions (B, length): the place within the document; None means start, start + 1, ... in every row.
    """

    length: int
    start: int = 0
    segments: Tensor | None = None
    positions: Tensor | None = None

    @classmethod
    def packed(cls, segments: Tensor) -> "Places":
        """Places of rows that hold several documents, whose positions count from 0 within each run of equal numbers."""
        length = segments.shape[1]
        index = torch.arange(length, device=segments.device).expand_as(segments)
        opens = torch.ones_like(segments, dtype=torch.bool)
        opens[:, 1:] = segments[:, 1:] != segments[:, :-1]
        first = torch.where(opens, index, torch.zeros_like(index)).cummax(dim=1).values
        return cls(length, 0, segments, index - first)

    @property
    def plain(self) -> bool:
        """True where no tensor is needed to know the places: one unpadded document a row, counted from `start`."""
        return self.segments is None and self.positions is None

    def position(self, index: Tensor) -> Tensor:
        """Positions of the tokens at `index` (any shape): (B or 1, *index.shape)."""
        return (index + self.start)[None] if self.positions is None else self.positions[:, index]

    def all_positions(self, device: torch.device) -> Tensor:
        """Positions of all tokens: (B or 1, length)."""
        if self.positions is not None:
            return self.positions
        return torch.arange(self.start, self.start + self.length, device=device)[None]

    def then(self, other: "Places", batch: int, device: torch.device) -> "Places":
        """These places followed by `other`, as a memory that grows."""
        if self.length == 0:
            return other
        if self.plain and other.plain and other.start == self.start + self.length:
            return Places(self.length + other.length, self.start)
        pairs = [p.tensors(batch, device) for p in (self, other)]
        return Places(
            self.length + other.length,
            0,
            torch.cat([segments for segments, _ in pairs], dim=1),
            torch.cat([positions for _, positions in pairs], dim=1),
        )

    def tensors(self, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Segments and positions written out: two tensors (batch, length)."""
        segments = self.segments
        if segments is None:
            segments = torch.ones(batch, self.length, dtype=torch.long, device=device)
        return segments, self.all_positions(device).expand(batch, -1)

    def last(self, n: int) -> "Places":
        """The last `n` places, or all of them where there are fewer."""
        drop = max(0, self.length - n)
        if drop == 0:
            return self
        if self.plain:
            return Places(n, self.start + drop)
        segments = None if self.segments is None else self.segments[:, drop:]
        positions = None if self.positions is None else self.positions[:, drop:]
        return Places(n, self.start + drop, segments, positions)

    def select(self, rows: Tensor) -> "Places":
        """Row i becomes what row `rows[i]` was."""
        parts = [t if t is None else t.index_select(0, rows.to(t.device)) for t in (self.segments, self.positions)]
        return replace(self, segments=parts[0], positions=parts[1])

    def merged(self, batch: int, n: int, device: torch.device) -> "Places":
        """Those of `batch` rows where `n` neighbouring ones become one row, its tokens behind each other."""
        if self.plain:
            return Places(n * self.length, positions=self.all_positions(device).repeat(batch // n, n))
        segments, positions = self.tensors(batch, device)
        return Places(n * self.length, 0, segments.reshape(batch // n, -1), positions.reshape(batch // n, -1))

    def to(self, device: torch.device) -> "Places":
        if self.plain:
            return self
        move = [t if t is None else t.to(device, non_blocking=True) for t in (self.segments, self.positions)]
        return replace(self, segments=move[0], positions=move[1])


@dataclass(frozen=True, eq=False)
class Visibility:
    """Which tokens of `memory` the tokens of `own` may read.

    A token sees its own document only, nothing that is padding, if `causal` nothing that stands after it, and with a `window`
    nothing that stands farther away than so many tokens. Pads see nothing.
    """

    causal: bool
    own: Places
    memory: Places
    window: int | None = None

    @property
    def plain(self) -> bool:
        """True where both sides are one unpadded document a row, so that no tensor of places takes part."""
        return self.own.plain and self.memory.plain

    @property
    def triangular(self) -> bool:
        """True for the plain causal square, which fused kernels know by themselves."""
        same = self.own.start == self.memory.start and self.own.length == self.memory.length
        return self.causal and self.plain and same and not self.narrow

    @property
    def full(self) -> bool:
        """True where everybody sees everything: not causal, or one query that stands at or after the end of memory."""
        last = self.memory.start + self.memory.length - 1
        return self.plain and not self.narrow and (not self.causal or self.own.start >= last)

    @property
    def narrow(self) -> bool:
        """True where the window is what limits the view."""
        if self.window is None:
            return False
        return not self.plain or max(self.own.start + self.own.length, self.memory.start + self.memory.length) > self.window + 1

    def after(self, kept: Places, batch: int, device: torch.device) -> "Visibility":
        """The same view where memory begins with what a state has kept."""
        return self if kept.length == 0 else replace(self, memory=kept.then(self.memory, batch, device))

    @cached_property
    def _narrowed(self) -> dict[int, "Visibility"]:
        return {}

    def within(self, window: int) -> "Visibility":
        """The same view through a window; made once however many layers ask for it."""
        if window not in self._narrowed:
            self._narrowed[window] = replace(self, window=window)
        return self._narrowed[window]

    def keep(self, q_index: Tensor, k_index: Tensor) -> Tensor:
        """True where query token `q_index` sees memory token `k_index`; the two broadcast: (B or 1, *their shape).

        An index outside its side is seen by nobody, so slabs may reach over the edge.
        """
        inside = (k_index >= 0) & (k_index < self.memory.length) & (q_index >= 0) & (q_index < self.own.length)
        q_index, k_index = q_index.clamp(0, self.own.length - 1), k_index.clamp(0, self.memory.length - 1)
        seen = inside[None]
        if self.causal or self.window is not None:
            distance = self.own.position(q_index) - self.memory.position(k_index)
            if self.causal:
                seen = seen & (distance >= 0)
            if self.window is not None:
                seen = seen & (distance.abs() <= self.window)
        if self.own.segments is not None or self.memory.segments is not None:
            q_segment, k_segment = (
                places.segments[:, index] if places.segments is not None else torch.ones_like(index)[None]
                for places, index in ((self.own, q_index), (self.memory, k_index))
            )
            seen = seen & (q_segment == k_segment) & (k_segment != 0)
        return seen

    def distance(self, q_index: Tensor, k_index: Tensor) -> Tensor:
        """How far back memory token `k_index` stands from query token `q_index`: (B or 1, *their shape); negative is ahead."""
        q_index, k_index = q_index.clamp(0, self.own.length - 1), k_index.clamp(0, self.memory.length - 1)
        return self.own.position(q_index) - self.memory.position(k_index)

    def rows(self, first: int, last: int, device: torch.device) -> Tensor:
        """`keep` for queries first..last-1 against the whole memory: (B or 1, last - first, M)."""
        index = torch.arange(first, last, device=device)
        return self.keep(index[:, None], torch.arange(self.memory.length, device=device)[None])

    @cached_property
    def _masks(self) -> dict[torch.device, Tensor]:
        return {}

    def mask(self, device: torch.device) -> Tensor:
        """The dense mask (B or 1, L, M), made once however many layers ask for it."""
        if device not in self._masks:
            self._masks[device] = self.rows(0, self.own.length, device)
        return self._masks[device]

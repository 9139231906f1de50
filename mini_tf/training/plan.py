"""Batch plans: the rows of each step, shuffled per epoch, as a pure function of (seed, step) without state to save.

Row i of step s is item s * batch_size + i of a concatenation of epochs. An epoch is a keyed permutation of all rows
(`data/permutation.py`).
"""

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from mini_tf.data.mixture import Mixture
from mini_tf.data.packing import BlockLayout
from mini_tf.data.permutation import permute, splitmix64
from mini_tf.recipe.sections import Train
from mini_tf.system.seeds import seed_of
from mini_tf.training.schedule import horizon_of


class StepRows(NamedTuple):
    """Rows of one step: rows (n,) in 0..n_rows-1; epochs (n,) from 0; keys (n,) uint64, the seed of each row."""

    rows: np.ndarray
    epochs: np.ndarray
    keys: np.ndarray


class RowLengths(Protocol):
    """Number and lengths (tokens) of the rows of a dataset, e.g. of a `Packing`."""

    @property
    def n_rows(self) -> int: ...
    @property
    def lengths(self) -> np.ndarray: ...
    @property
    def layout(self) -> BlockLayout | None: ...


class Plan(ABC):
    """The rows of every step: a pure function of (seed, step)."""

    batch_size: int
    """Rows of the largest step."""
    stream: bool = False
    """Row i of a step continues row i of the step before."""
    even: bool = True
    """All steps have equally many rows, so all micro-batches do."""
    reads_own_rows: bool = False
    """Rows have one length and are costly to read: a process reads only those of its own micro-batches."""

    @property
    @abstractmethod
    def epoch_steps(self) -> float:
        """Steps per epoch."""

    @abstractmethod
    def rows(self, step: int) -> StepRows:
        """The rows of step number `step` (from 0)."""


@dataclass(frozen=True)
class RowPlan(Plan):
    """Equally many rows per step. n_rows: per epoch. stream: row i of a step continues row i of the step before."""

    n_rows: int
    batch_size: int
    seed: int
    stream: bool = False

    @property
    def epoch_steps(self) -> float:
        return self.n_rows / self.batch_size

    def rows(self, step: int) -> StepRows:
        """They may span two epochs.

        With `stream` row i follows the text from offset i / batch_size on and wraps around at its end; the epoch stays
        0, since other epochs cut the text at other positions.
        """
        index = np.arange(self.batch_size, dtype=np.int64)
        keys = splitmix64(seed_of(self.seed, "rows", step), index)
        if self.stream:
            return StepRows((index * self.n_rows // self.batch_size + step) % self.n_rows, np.zeros_like(index), keys)
        epochs, positions = np.divmod(step * self.batch_size + index, self.n_rows)
        rows = np.empty_like(positions)
        for epoch in np.unique(epochs):
            of_epoch = epochs == epoch
            rows[of_epoch] = permute(positions[of_epoch], self.n_rows, seed_of(self.seed, "epoch", int(epoch)))
        return StepRows(rows, epochs, keys)


@dataclass(frozen=True, eq=False)
class TokenPlan(Plan):
    """Batches of at most `batch_tokens` tokens, padding included, from rows of similar length.

    lengths (n_rows,): tokens of each row.

    Rows are put into buckets by length. In every epoch each bucket is shuffled and cut into batches, and the batches of
    all buckets are shuffled. A bucket has equally many batches in every epoch, so the batch of any step is known.
    """

    lengths: np.ndarray
    batch_tokens: int
    seed: int

    even = False

    @cached_property
    def _buckets(self) -> list[np.ndarray]:
        """The rows of each bucket, longest first.

        A bucket smaller than a batch is merged with the next shorter one unless that is much shorter, because a small
        batch has the same weight in training as a full one.
        """
        edges = _edges(int(self.lengths.max()))
        bucket_ids = np.searchsorted(edges, self.lengths)
        buckets, pending = list[np.ndarray](), np.empty(0, np.int64)
        for rows in (np.flatnonzero(bucket_ids == bucket) for bucket in np.unique(bucket_ids)[::-1]):
            if len(pending):
                longest = int(self.lengths[pending].max())
                if len(pending) * longest >= self.batch_tokens or 3 * int(self.lengths[rows].max()) < 2 * longest:
                    buckets.append(pending)
                    pending = np.empty(0, np.int64)
            pending = np.union1d(pending, rows)
        return [*buckets, pending]

    @cached_property
    def _batches(self) -> list[tuple[int, int, int]]:
        """(bucket, first, last + 1) of every batch of an epoch, in the shuffled order of the bucket."""
        batches = []
        for bucket, rows in enumerate(self._buckets):
            fit = max(1, self.batch_tokens // int(self.lengths[rows].max()))
            cuts = np.linspace(0, len(rows), -(-len(rows) // fit) + 1).round().astype(int).tolist()
            batches += [(bucket, first, last) for first, last in itertools.pairwise(cuts)]
        return batches

    @cached_property
    def batch_size(self) -> int:  # type: ignore[override]
        return max(last - first for _, first, last in self._batches)

    @property
    def epoch_steps(self) -> float:
        return len(self._batches)

    def rows(self, step: int) -> StepRows:
        """All are of one epoch."""
        epoch, number = divmod(step, len(self._batches))
        [batch] = permute(np.array([number]), len(self._batches), seed_of(self.seed, "batches", epoch)).tolist()
        bucket, first, last = self._batches[batch]
        rows, positions = self._buckets[bucket], np.arange(first, last)
        rows = rows[permute(positions, len(rows), seed_of(self.seed, "epoch", epoch, bucket))]
        keys = splitmix64(seed_of(self.seed, "rows", step), positions - first)
        return StepRows(rows, np.full(len(rows), epoch), keys)


@dataclass(frozen=True)
class BlockPlan(Plan):
    """Equally many rows per step, from rows in blocks that are costly to read.

    An epoch is a keyed permutation of the blocks, with the rows of each in another order. This sequence is cut into
    `n_open` equally long segments, and a round of as many steps as take a row of each takes the next rows of every
    segment: a step takes them from segments that are spread evenly, and successive rows of it from successive segments.
    So each block is read once in an epoch, and the processes that share a step read different blocks. Rows that would
    fill only a part of a round are left out of the epoch.
    """

    layout: BlockLayout
    batch_size: int
    seed: int

    reads_own_rows = True

    @property
    def _round_steps(self) -> int:
        """Steps that take a row of every segment."""
        n_rows = self.layout.n_blocks * self.layout.rows
        return max(1, min(-(-self.layout.n_open // self.batch_size), n_rows // self.batch_size))

    @property
    def epoch_steps(self) -> float:
        n = self._round_steps
        return max(1, self.layout.n_blocks * self.layout.rows // (self.batch_size * n)) * n

    def rows(self, step: int) -> StepRows:
        """All are of one epoch."""
        (n_blocks, rows, n_open), n_steps, of_round = self.layout, int(self.epoch_steps), self._round_steps
        epoch, step_in_epoch = divmod(step, n_steps)
        number, phase = divmod(step_in_epoch, of_round)
        index = np.arange(self.batch_size, dtype=np.int64)
        round_size, taken = self.batch_size * of_round, index * of_round + phase
        n_segments = min(n_open, round_size)
        cuts = np.arange(n_segments + 1) * round_size // n_segments
        segment = np.searchsorted(cuts, taken, side="right") - 1
        first, width = cuts[segment], np.diff(cuts)[segment]
        place = (first * (n_steps // of_round) + number * width + taken - first) % (n_blocks * rows)
        slot, row = np.divmod(place, rows)
        blocks = permute(slot, n_blocks, seed_of(self.seed, "blocks", epoch))
        rotation = splitmix64(seed_of(self.seed, "rotation", epoch), blocks) % np.uint64(rows)
        row = (permute(row, rows, seed_of(self.seed, "epoch", epoch)) + rotation.astype(np.int64)) % rows
        keys = splitmix64(seed_of(self.seed, "rows", step), index)
        return StepRows(blocks * rows + row, np.full(self.batch_size, epoch), keys)


def _edges(longest: int) -> np.ndarray:
    """The largest length of each bucket, each 1/8 above the one before."""
    edges = [8]
    while edges[-1] < longest:
        edges.append(max(edges[-1] + 1, edges[-1] * 9 // 8))
    return np.array(edges)


@dataclass(frozen=True, eq=False)
class MixturePlan(Plan):
    """The rows of a data mixture, by the share of each source.

    firsts (sources + 1,): number of the first row of each source. shares (sources,): of the rows, summing to 1.

    The rows of a run are cut into windows of one or more steps. The number of rows of a source up to the end of a
    window is its share of all rows so far, rounded. Which rows of the window are its is a keyed permutation; which of
    its own rows come next is another one for each of its epochs, so each is read once before one is read again.
    """

    firsts: np.ndarray
    shares: np.ndarray
    batch_size: int
    seed: int

    @property
    def epoch_steps(self) -> float:
        """Steps with as many rows as all sources have."""
        return float(self.firsts[-1] / self.batch_size)

    @property
    def _window(self) -> int:
        """Rows of a window: whole steps, and so many that no rounding leaves the largest source without room."""
        least = len(self.shares) ** 2
        return self.batch_size * -(-least // self.batch_size)

    def counts(self, n_rows: int) -> np.ndarray:
        """(sources,): rows of each source among the first `n_rows` of the run, at the end of a window."""
        counts = np.floor(self.shares * n_rows + 0.5).astype(np.int64)
        largest = int(self.shares.argmax())
        counts[largest] = 0
        counts[largest] = n_rows - counts.sum()
        return counts

    def rows(self, step: int) -> StepRows:
        window, index = self._window, np.arange(self.batch_size, dtype=np.int64)
        number, first = divmod(step * self.batch_size, window)
        before, after = self.counts(number * window), self.counts((number + 1) * window)
        place = permute(first + index, window, seed_of(self.seed, "mixture", number))
        ends = np.cumsum(after - before)
        source = np.searchsorted(ends, place, side="right")
        ordinal = before[source] + place - (ends - (after - before))[source]
        sizes = np.diff(self.firsts)
        epochs, positions = np.divmod(ordinal, sizes[source])
        rows = np.empty_like(positions)
        for of_source, epoch in {*zip(source.tolist(), epochs.tolist(), strict=True)}:
            mask = (source == of_source) & (epochs == epoch)
            seed = seed_of(self.seed, "epoch", epoch, of_source)
            rows[mask] = self.firsts[of_source] + permute(positions[mask], int(sizes[of_source]), seed)
        return StepRows(rows, epochs, splitmix64(seed_of(self.seed, "rows", step), index))


@lru_cache(maxsize=16)
def rows_of(plan: Plan, step: int) -> StepRows:
    """`plan.rows(step)`, once for all that ask for the first steps, and for a step; read only."""
    return plan.rows(step)


def make_plan(train: Train, rows: RowLengths) -> Plan:
    """The plan of a recipe: by `train.batch_tokens`, else by `train.batch_size`.

    RecipeFault if the epochs of the sources of a mixture do not fit into the run.
    """
    if isinstance(rows, Mixture):
        batch_size = train.batch_size
        steps = horizon_of(train, rows.n_rows / batch_size, rows.n_rows * rows.row_tokens).steps
        shares = rows.shares(None if steps is None else steps * batch_size, batch_size)
        return MixturePlan(rows.firsts, shares, batch_size, train.seed)
    if rows.layout is not None:
        return BlockPlan(rows.layout, train.batch_size, train.seed)
    if train.batch_tokens is not None:
        return TokenPlan(rows.lengths, train.batch_tokens, train.seed)
    return RowPlan(rows.n_rows, train.batch_size, train.seed, train.stream)

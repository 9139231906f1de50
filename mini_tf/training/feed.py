"""From the plan to micro-batches: rows are taken from the store, split, and made into batches, one step ahead.

All of it is a pure function of the step, so batches that are never used change nothing.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.packing import Packing
from mini_tf.training.plan import Plan


@dataclass(frozen=True)
class Feed:
    """Micro-batches of any step. prepare: the objective's. Steps with fewer rows are split into as many parts."""

    plan: Plan
    packing: Packing
    prepare: Callable[[Rows], Batch]
    micro_batch_size: int

    @property
    def n_micro(self) -> int:
        """Micro-batches of the largest step."""
        return -(-self.plan.batch_size // self.micro_batch_size)

    def cuts(self, n_rows: int) -> list[tuple[int, int]]:
        """First row of each micro-batch of a step of so many rows, and the end of the last."""
        n = min(n_rows, self.n_micro)
        return [(n_rows * m // n, n_rows * (m + 1) // n) for m in range(n)]

    def micro_batches(self, step: int) -> list[Batch]:
        """The batches of step number `step`, on CPU."""
        rows = self._rows(step)
        return [self.prepare(rows.part(first, last)) for first, last in self.cuts(len(rows))]

    def _rows(self, step: int) -> Rows:
        chosen = self.plan.rows(step)
        parts = []
        for epoch in np.unique(chosen.epochs):
            here = chosen.epochs == epoch
            parts.append(self.packing.take(chosen.rows[here], int(epoch), chosen.keys[here]))
        return parts[0] if len(parts) == 1 else _join(parts)


@contextmanager
def ahead(feed: Feed, first: int, in_background: bool) -> Iterator[Iterator[list[Batch]]]:
    """Micro-batches of step `first`, first + 1, ..., each prepared in the background during the step before.

    Not in the background on the CPU, where a second busy thread stalls torch's own threads.
    """
    if not in_background:
        yield (feed.micro_batches(step) for step in count(first))
        return
    worker = ThreadPoolExecutor(1, "feed")
    begun = (worker.submit(feed.micro_batches, step) for step in count(first))
    try:
        yield (ready.result() for ready, _ in pairwise(begun))
    finally:
        worker.shutdown(cancel_futures=True)


def _join(parts: list[Rows]) -> Rows:
    """Rows of several epochs as one; narrower ones are padded (segment 0, id 0) to the widest."""
    width = max(part.ids.shape[1] for part in parts)

    def widen(array: np.ndarray, by: float = 0) -> np.ndarray:
        return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=by)

    plain = all(part.segments is None and part.ids.shape[1] == width for part in parts)
    segments = [widen(np.ones_like(part.ids) if part.segments is None else part.segments) for part in parts]
    starts = [widen(part.word_starts) for part in parts if part.word_starts is not None]
    sources = [part.source for part in parts if part.source is not None]
    labels = [widen(part.labels, np.nan) for part in parts if part.labels is not None]
    row_labels = [part.row_labels for part in parts if part.row_labels is not None]
    return Rows(
        np.concatenate([widen(part.ids) for part in parts]),
        np.concatenate([part.keys for part in parts]),
        None if plain else np.concatenate(segments),
        np.concatenate(starts) if starts else None,
        _join(sources) if sources else None,
        np.concatenate(labels) if labels else None,
        np.concatenate(row_labels) if row_labels else None,
    )

"""Data loading: rows of the planned steps become micro-batches, prefetched one step ahead.

A pure function of the step, so prefetched batches that are never used have no effect on a resumed run.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count, pairwise

import numpy as np
from torch import Tensor

from mini_tf.data.batch import Batch, Rows, join_rows
from mini_tf.data.packing import Packing
from mini_tf.training.plan import Plan, StepRows, rows_of


@dataclass(frozen=True)
class Feed:
    """The micro-batches of any step: `n_micro`, or one per row in a smaller step.

    prepare: `Objective.prepare`. progress: of a step, `Rows.progress` of its rows.
    """

    plan: Plan
    packing: Packing
    prepare: Callable[[Rows], Batch]
    micro_batch_size: int
    assigned: Callable[[int], range] = range
    """The micro-batches of this process, out of a number of them (`Reduction.assigned`); by default all."""
    progress: Callable[[int], float] = lambda step: 0.5

    @property
    def n_micro(self) -> int:
        """Number of micro-batches of the largest step."""
        return -(-self.plan.batch_size // self.micro_batch_size)

    def bounds(self, n_rows: int) -> list[tuple[int, int]]:
        """(first, last + 1) row of each micro-batch of a step of `n_rows` rows."""
        n = min(n_rows, self.n_micro)
        return [(n_rows * m // n, n_rows * (m + 1) // n) for m in range(n)]

    def micro_batches(self, step: int) -> list[Batch]:
        """This process's micro-batches of step number `step` (from 0), on the CPU."""
        chosen = rows_of(self.plan, step)
        bounds = self.bounds(len(chosen.rows))
        assigned = [bounds[micro] for micro in self.assigned(len(bounds))]
        if self.plan.reads_own_rows:
            parts = (StepRows(*(array[first:last] for array in chosen)) for first, last in assigned)
            return [self.prepare(self._rows(part, step)) for part in parts]
        rows = self._rows(chosen, step)  # of all processes, since they decide to which length rows are padded
        return [self.prepare(rows.slice(first, last)) for first, last in assigned]

    def n_micro_of(self, step: int) -> int:
        """Number of micro-batches of step number `step`, of all processes."""
        return len(self.bounds(len(rows_of(self.plan, step).rows)))

    def _rows(self, chosen: StepRows, step: int) -> Rows:
        parts = []
        for epoch in np.unique(chosen.epochs):
            of_epoch = chosen.epochs == epoch
            parts.append(self.packing.take(chosen.rows[of_epoch], int(epoch), chosen.keys[of_epoch]))
        rows = parts[0] if len(parts) == 1 else join_rows(parts)
        return replace(rows, progress=np.full(len(rows), self.progress(step)))


@contextmanager
def prefetch(feed: Feed, first: int, in_background: bool, pinned: bool = False) -> Iterator[Iterator[list[Batch]]]:
    """Iterate over the micro-batches of steps `first`, first + 1, ..., each prepared during the step before.

    in_background: in a worker thread; not for a CPU device, where it would slow down torch's own threads. pinned: in
    memory from which a GPU copies while the host goes on.
    """
    if not in_background:
        yield (feed.micro_batches(step) for step in count(first))
        return
    worker = ThreadPoolExecutor(1, "feed")

    def load(step: int) -> list[Batch]:
        batches = feed.micro_batches(step)
        return [batch.each(Tensor.pin_memory) for batch in batches] if pinned else batches

    futures = (worker.submit(load, step) for step in count(first))
    try:
        yield (ready.result() for ready, _ in pairwise(futures))
    finally:
        worker.shutdown(cancel_futures=True)

"""Work on many items, or on many batches, that several processes divide; the results stand in the order of one process.

A process gets every `size`-th item.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from torch import Tensor

from mini_tf.parallel.group import ProcessGroup
from mini_tf.system.errors import MinitfError, batches_of
from mini_tf.system.processes import fields_of, same_error

Item = TypeVar("Item")
Result = TypeVar("Result")


def divided(group: ProcessGroup, items: Iterator[Item], work: Callable[[Item], Iterable[Result]]) -> Iterator[Result]:
    """The results of all items, in their order, on every process; each does its share. Results are JSON.

    A single process yields each result as soon as it is there. An error of one process is raised by all, after the
    results before it.
    """
    for some in batches_of(items, group.size):
        if group.size == 1:
            yield from work(some[0])
            continue
        with group.independently():
            done, fault = _done(work, some[group.rank]) if group.rank < len(some) else ([], None)
        for results, fields in group.gather([done, None if fault is None else fields_of(fault)]):
            yield from results
            if fields is not None:
                raise same_error(fault, fields)


def _done(work: Callable[[Item], Iterable[Result]], item: Item) -> tuple[list[Result], MinitfError | None]:
    """The results up to an error, and the error."""
    results: list[Result] = []
    try:
        for result in work(item):
            results.append(result)
    except MinitfError as fault:
        return results, fault
    return results, None


class DividedOutputs(Generic[Item]):
    """Outputs of batches that the processes divide, for `add` on rank 0: each batch with its outputs, in their order.

    A process has the outputs of its own batches until each of the others has one, too.
    """

    def __init__(self, group: ProcessGroup, add: Callable[[Item, Tensor], None]) -> None:
        self._group, self._add = group, add
        self._n = 0
        self._waiting: list[tuple[Item | None, Tensor | None]] = []

    @property
    def is_own(self) -> bool:
        """Whether this process computes the outputs of the next batch."""
        return self._n % self._group.size == self._group.rank

    def append(self, batch: Item | None, outputs: Tensor | None) -> None:
        """The next batch. outputs: None unless it `is_own`. batch: only rank 0 needs it."""
        self._waiting.append((batch, outputs))
        self._n += 1
        if len(self._waiting) == self._group.size:
            self.finish()

    def finish(self) -> None:
        """Call it after the last batch."""
        outputs_ = {str(number): outputs for number, (_, outputs) in enumerate(self._waiting) if outputs is not None}
        collected = self._group.collect(outputs_)
        for number, (batch, outputs) in enumerate(self._waiting if self._group.leads else ()):
            self._add(batch, outputs if number == 0 else collected[str(number)])  # type: ignore[arg-type]
        self._waiting.clear()

"""Work that several processes divide: many items, many batches, or data that those with one cache folder prepare."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import Tensor

from mini_tf.parallel.group import ProcessGroup
from mini_tf.system.errors import MinitfError, batches_of
from mini_tf.system.processes import fields_of, same_error
from mini_tf.system.safe_files import remove_path, temporary_path

Item = TypeVar("Item")
Result = TypeVar("Result")


def divided(group: ProcessGroup, items: Iterator[Item], work: Callable[[Item], Iterable[Result]]) -> Iterator[Result]:
    """The results of all items, in their order, on every process, each of which does every `world_size`-th item.

    Results are JSON. A single process yields each as soon as it is there. An error of one process is raised by all,
    after the results before it.
    """
    for some in batches_of(items, group.world_size):
        if group.world_size == 1:
            yield from work(some[0])
            continue

        def compute(results: list[Result], some: Sequence[Item] = some) -> None:
            for item in some[group.rank : group.rank + 1]:
                for result in work(item):
                    results.append(result)

        for results in _of_all(group, compute):
            yield from results


def _of_all(group: ProcessGroup, compute: Callable[[list[Any]], None]) -> Iterator[list[Any]]:
    """What `compute` appends on each process, by rank, on every process; of JSON. It may take long.

    All raise the MinitfError of the lowest rank that has one, after what it appended before.
    """
    appended, fault = list[Any](), None
    with group.independently():
        try:
            compute(appended)
        except MinitfError as error:
            fault = error
    for results, fields in group.all_gather([appended, None if fault is None else fields_of(fault)]):
        yield results
        if fields is not None:
            raise same_error(fault, fields)


def in_turns(group: ProcessGroup, batches: Iterable[Item]) -> Iterator[tuple[int | None, Item, bool]]:
    """The batches with their numbers, and whether this process computes them.

    One without a batch in the last turn computes the last batch, too, with None: all call the model equally often.
    """
    number, last = -1, None
    for number, last in enumerate(batches):
        yield number, last, number % group.world_size == group.rank
    if last is not None and number % group.world_size < group.rank:
        yield None, last, True


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
        return self._n % self._group.world_size == self._group.rank

    def skip(self, make: Callable[[], Item]) -> None:
        """The next batch, which another process computes; `make` returns it, for rank 0 only."""
        self.append(make() if self._group.is_rank_0 else None, None)

    def append(self, batch: Item | None, outputs: Tensor | None) -> None:
        """The next batch, which this process has computed."""
        self._waiting.append((batch, outputs))
        self._n += 1
        if len(self._waiting) == self._group.world_size:
            self.finish()

    def finish(self) -> None:
        """Call it after the last batch."""
        here = {str(number): outputs for number, (_, outputs) in enumerate(self._waiting) if outputs is not None}
        collected = self._group.gather(here)
        for number, (batch, outputs) in enumerate(self._waiting if self._group.is_rank_0 else ()):
            self._add(batch, outputs if number == 0 else collected[str(number)])  # type: ignore[arg-type]
        self._waiting.clear()


@dataclass(frozen=True)
class Team:
    """Processes of a group, by rank, that prepare data together: those that see the same cache folder.

    `on_all` and `on_first` are collective: all processes of the group call them, in the same order.
    """

    group: ProcessGroup
    ranks: Sequence[int] = (0,)

    @classmethod
    def of(cls, group: ProcessGroup, folder: Path) -> "Team":
        """The processes that see the same `folder` as this one, where each leaves a mark for a moment.

        In a folder that is read-only each is by itself: what is there already can be used.
        """
        if group.world_size == 1:
            return ALONE
        mark = temporary_path(folder / "seen")
        try:
            with suppress(OSError):
                mark.touch()
            marks = group.all_gather(mark.name)
            first = next((rank for rank, name in enumerate(marks) if (folder / name).exists()), group.rank)
            firsts = group.all_gather(first)
        finally:
            remove_path(mark)
        return cls(group, [rank for rank, other in enumerate(firsts) if other == first])

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def rank(self) -> int:
        """The place of this process in the team, from 0."""
        return self.ranks.index(self.group.rank)

    def average(self, total: int) -> int:
        """About how much of `total` each process does."""
        return total // self.size

    def assigned(self, items: Sequence[Item], size: Callable[[Item], int]) -> Sequence[Item]:
        """The items of this process: consecutive ones, for each process of about the same size in sum."""
        sizes = list(map(size, items))
        total, ends = max(1, sum(sizes)), accumulate(sizes)
        owners = [(2 * end - n) * self.size // (2 * total) for n, end in zip(sizes, ends, strict=True)]
        return [item for item, owner in zip(items, owners, strict=True) if min(owner, self.size - 1) == self.rank]

    def on_all(self, compute: Callable[[], Result]) -> list[Result]:
        """What `compute` returns on each process of the team, on all of them; of JSON. It may take long.

        All raise the MinitfError that `compute` raises on a process, of several that of the lowest rank.
        """
        results = [*_of_all(self.group, lambda results: results.append(compute()))]
        return [results[rank][0] for rank in self.ranks]

    def on_first(self, compute: Callable[[], Result]) -> Result:
        """What `compute` returns on the first process of the team, on all of them; no other process calls it."""
        return self.on_all(lambda: compute() if self.rank == 0 else None)[0]  # type: ignore[return-value]


ALONE = Team(ProcessGroup())
"""A single process."""

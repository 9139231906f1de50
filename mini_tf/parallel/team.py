"""Processes that prepare data together: those that see the same cache folder."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

from mini_tf.parallel.group import ProcessGroup
from mini_tf.system.errors import MinitfError
from mini_tf.system.processes import fields_of, same_error
from mini_tf.system.safe_files import remove_path, temporary_path

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Team:
    """Some processes of a group, by rank; the first one leads.

    `work` and `lead` are collective: all processes of the group call them, in the same order.
    """

    group: ProcessGroup
    ranks: Sequence[int] = (0,)

    @classmethod
    def of(cls, group: ProcessGroup, folder: Path) -> "Team":
        """The processes that see the same `folder` as this one, where each leaves a mark for a moment.

        In a folder that is read-only each is by itself: what is there already can be used.
        """
        if group.size == 1:
            return ALONE
        mark = temporary_path(folder / "seen")
        try:
            with suppress(OSError):
                mark.touch()
            first = next(
                (rank for rank, name in enumerate(group.gather(mark.name)) if (folder / name).exists()), group.rank
            )
            firsts = group.gather(first)
        finally:
            remove_path(mark)
        return cls(group, [rank for rank, other in enumerate(firsts) if other == first])

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def number(self) -> int:
        """The place of this process in the team, from 0."""
        return self.ranks.index(self.group.rank)

    def own(self, items: Sequence[Item], size: Callable[[Item], int]) -> Sequence[Item]:
        """The items of this process: consecutive ones, for each process of about the same size in sum."""
        sizes = list(map(size, items))
        total = max(1, sum(sizes))
        owners = [
            (2 * end - size) * self.size // (2 * total) for size, end in zip(sizes, accumulate(sizes), strict=True)
        ]
        return [item for item, owner in zip(items, owners, strict=True) if min(owner, self.size - 1) == self.number]

    def work(self, compute: Callable[[], Result]) -> list[Result]:
        """What `compute` returns on each process of the team, on all of them; of JSON. It may take long.

        All raise the MinitfError that `compute` raises on a process, of several that of the lowest rank.
        """
        results = self._gather(compute)
        return [results[rank] for rank in self.ranks]

    def lead(self, compute: Callable[[], Result]) -> Result:
        """What `compute` returns on the first process of the team, on all of them; no other process calls it."""
        led: Result = self._gather(lambda: compute() if self.number == 0 else None)[self.ranks[0]]
        return led

    def _gather(self, compute: Callable[[], Any]) -> list[Any]:
        result, fault = None, None
        with self.group.independently():
            try:
                result = compute()
            except MinitfError as error:
                fault = error
        everywhere = self.group.gather([result, None if fault is None else fields_of(fault)])
        for _, fields in everywhere:
            if fields is not None:
                raise same_error(fault, fields)
        return [result_ for result_, _ in everywhere]


ALONE = Team(ProcessGroup())
"""A single process."""

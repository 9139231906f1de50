"""The exceptions for errors that a user can correct, each with its exit code.

    MinitfError              1   base class
    ├── UsageFault       2   the command line was wrong
    ├── RecipeFault      3   the recipe was refused
    ├── DataFault        4   the data or the tokenizer was refused
    ├── RunFault         5   a run folder, checkpoint or model file was refused
    ├── StorageFault     6   out of memory or disk, or input/output failed
    ├── Diverged         7   the loss or a gradient is not finite
    ├── GateMissed       8   an --assert or --expect was not met; the work itself succeeded
    └── Unavailable      9   a device, an optional package or another process is missing
        └── ProcessLost  9   another of several processes ended, hangs or cannot be reached; it knows why

A ValueError inside minitf means a wrong call in the code, not a user's error.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

Fault = TypeVar("Fault", bound="MinitfError")
Item = TypeVar("Item")


class MinitfError(Exception):
    """message: where, what is, what must be. hint: how to correct it. where: locations such as "recipe.yaml:14".

    faults: several errors found at once, one line each; `message` is then the first line or a summary.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None, where: Sequence[str] = (), faults: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = tuple(where)
        self.faults = tuple(faults) or (message,)

    @classmethod
    def located(cls: type[Fault], where: str, message: str, hint: str | None = None) -> Fault:
        """An error at one location, which is prefixed to the message."""
        return cls(f"{where}: {message}", hint=hint, where=(where,))


def raise_first_fault(items: Iterable[Item | MinitfError]) -> Iterator[Item]:
    """Yield the items before the first error, then raise it."""
    for item in items:
        if isinstance(item, MinitfError):
            raise item
        yield item


def batches_of(items: Iterator[Item], n: int) -> Iterator[list[Item]]:
    """Lists of `n` items, the last one shorter; items before a DataFault are yielded before it is raised."""
    group: list[Item] = []
    try:
        for item in items:
            group.append(item)
            if len(group) == n:
                yield group
                group = []
    except DataFault:
        if group:
            yield group
        raise
    if group:
        yield group


class UsageFault(MinitfError):
    exit_code = 2


class RecipeFault(MinitfError):
    exit_code = 3


class DataFault(MinitfError):
    exit_code = 4


class RunFault(MinitfError):
    exit_code = 5


class StorageFault(MinitfError):
    exit_code = 6


class Diverged(MinitfError):
    exit_code = 7


class GateMissed(MinitfError):
    exit_code = 8


class Unavailable(MinitfError):
    exit_code = 9


class ProcessLost(Unavailable):
    pass

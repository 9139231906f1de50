"""Everything minitf refuses, each with the exit code that scripts rely on.

    Refusal              1   base class; raised only through one of the classes below
    ├── UsageFault       2   the command line was wrong
    ├── RecipeFault      3   the recipe was refused
    ├── DataFault        4   the data or the tokenizer was refused
    ├── RunFault         5   a run folder, checkpoint or model file was refused
    ├── StorageFault     6   out of memory or disk, or input/output failed
    ├── Diverged         7   the loss or a gradient is not finite
    ├── GateMissed       8   an --assert or --expect was not met; the work itself succeeded
    └── Unavailable      9   a device, an optional package or another process is missing

A ValueError inside minitf means a programmer's mistake at an internal boundary; a Refusal is what a user gets to read.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

Fault = TypeVar("Fault", bound="Refusal")
Item = TypeVar("Item")


class Refusal(Exception):
    """One thing that is wrong: what is, what must be, and where; `hint` is the nearest way out.

    `where` lists places a person can open ("recipe.yaml:14", "data.jsonl:42"). Several faults found at once go into
    `faults`, a line each; `message` then is their first line or a summary.
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
        """What is wrong at a place that a person can open, with which the message begins."""
        return cls(f"{where}: {message}", hint=hint, where=(where,))


def raising(found: Iterable[Item | Refusal]) -> Iterator[Item]:
    """What comes before the first fault, which is raised."""
    for one in found:
        if isinstance(one, Refusal):
            raise one
        yield one


class UsageFault(Refusal):
    exit_code = 2


class RecipeFault(Refusal):
    exit_code = 3


class DataFault(Refusal):
    exit_code = 4


class RunFault(Refusal):
    exit_code = 5


class StorageFault(Refusal):
    exit_code = 6


class Diverged(Refusal):
    exit_code = 7


class GateMissed(Refusal):
    exit_code = 8


class Unavailable(Refusal):
    exit_code = 9

"""The group of processes that train one model together, as every part of minitf sees it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

from torch import Tensor

from mini_tf.system.cache import hash_of
from mini_tf.system.errors import RunFault
from mini_tf.system.processes import ProcessRank

Result = TypeVar("Result")


class ProcessGroup:
    """A single process, and the contract of several (`TorchGroup`).

    Every method is collective: all processes call it, in the same order. ProcessLost where another one does not.
    """

    def __init__(self, process: ProcessRank | None = None) -> None:
        self.process = process or ProcessRank()

    @property
    def rank(self) -> int:
        return self.process.rank

    @property
    def world_size(self) -> int:
        """Number of processes."""
        return self.process.world_size

    @property
    def is_rank_0(self) -> bool:
        """Whether this process writes the run folder and the messages."""
        return self.process.rank == 0

    def several(self, text: str) -> str:
        """A text about several processes, with their number in place of {n}; "" for a single one."""
        return text.replace("{n}", str(self.world_size)) if self.world_size > 1 else ""

    def largest_micro_batch(self, batch_size: int, even: bool) -> int:
        """The most rows of a micro-batch with which each process has one, or 0. even: they must divide `batch_size`."""
        sizes = range(1, batch_size // self.world_size + 1)
        return max((size for size in sizes if not even or batch_size % size == 0), default=0)

    def all_gather(self, value: Any) -> list[Any]:
        """The values of all processes by rank, on every process; of JSON, with non-finite numbers."""
        return [value]

    @contextmanager
    def independently(self) -> Iterator[None]:
        """Within it each process works by itself, as long as it needs; at its end each waits for all.

        A process that is at work still answers the others; ProcessLost where one does not. No collectives within.
        """
        yield

    def on_rank_0(self, make: Callable[[], Result]) -> Result:
        """What `make` returns on rank 0, on every process; only rank 0 calls it, and may take long. Of JSON."""
        with self.independently():
            made: Any = make() if self.is_rank_0 else None
        shared: Result = self.all_gather(made)[0]
        return shared

    def gather(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The tensors of all processes by name, on rank 0; {} on the others.

        A process that does not have a tensor's numbers may give it on the meta device, for its place in the order.
        """
        return tensors

    @contextmanager
    def local_rank_0_first(self) -> Iterator[None]:
        """The block runs on the first process of each machine, then on the others, which find what it cached."""
        first = self.process.local_rank == 0
        with self.independently():
            if first:
                yield
        with self.independently():
            if not first:
                yield

    def all_reduce(self, tensor: Tensor) -> None:
        """Replace a tensor by the sum over all processes, in an order that depends on their number only."""

    def send_recv(self, tensor: Tensor, partner: int) -> Tensor:
        """Send a tensor to the process `partner` and return its tensor; the partner names this process."""
        raise ValueError(f"a single process has no partner {partner}")

    def broadcast(self, tensor: Tensor, source: int = 0) -> None:
        """Replace a tensor by that of the process `source`."""

    def barrier(self) -> None:
        """Wait until all processes are here."""
        with self.independently():
            pass

    def communication(self) -> AbstractContextManager[None]:
        """Within it a collective of torch that fails raises ProcessLost, which names a process that hangs; other errors
        pass."""
        return nullcontext()


def refuse_different(group: ProcessGroup, values: Mapping[str, Any]) -> None:
    """Raise RunFault unless all processes have the same values, which are JSON; names are those of the message."""
    everywhere = group.all_gather({name: hash_of(value) for name, value in values.items()})
    for rank, other in enumerate(everywhere):
        if different := [name for name in values if other[name] != everywhere[0][name]]:
            fault = f"rank {rank} has another {' and '.join(different)} than rank 0"
            raise RunFault(fault, hint="all processes need the same command and files")

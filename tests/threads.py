"""Several processes as threads of this one, so that their rules are tested in milliseconds.

`Threads` keeps the contract of `ProcessGroup`; `test_parallel.py` holds it and `TorchGroup` to the same tests.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from mini_tf.parallel.group import ProcessGroup
from mini_tf.system.errors import ProcessLost
from mini_tf.system.processes import ProcessRank

Result = TypeVar("Result")


class Board:
    """Where threads leave a value for all."""

    def __init__(self, size: int) -> None:
        self.values: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=60)

    def exchange(self, rank: int, value: Any) -> list[Any]:
        """The values of all threads, which all call it; ProcessLost where one has ended with an error."""
        self.values[rank] = value
        try:
            self.barrier.wait()
            values = list(self.values)
            self.barrier.wait()
        except threading.BrokenBarrierError:
            raise ProcessLost("another process of the run ended") from None
        return values


class Threads(ProcessGroup):
    """A group of threads. A collective within `independently` is an error of the test."""

    def __init__(self, process: ProcessRank, board: Board) -> None:
        super().__init__(process)
        self._board, self._alone = board, False

    def _exchange(self, value: Any) -> list[Any]:
        assert not self._alone, "a collective where each process works by itself"
        return self._board.exchange(self.rank, value)

    def all_gather(self, value: Any) -> list[Any]:
        return [json.loads(text) for text in self._exchange(json.dumps(value))]

    @contextmanager
    def independently(self) -> Iterator[None]:
        assert not self._alone, "a collective where each process works by itself"
        self._alone, failed = True, True
        try:
            yield
            failed = False
        finally:
            self._alone = False
            failures = self._exchange(failed)
        if any(failures):
            raise ProcessLost("another process of the run failed")

    def gather(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        everywhere = self._exchange({name: tensor.detach().clone() for name, tensor in tensors.items()})
        collected = dict(tensors) if self.is_rank_0 else {}
        for others in everywhere[1:] if self.is_rank_0 else ():
            for name, tensor in others.items():
                if not tensor.is_meta and (name not in collected or collected[name].is_meta):
                    collected[name] = tensor
        return collected

    def all_reduce(self, tensor: Tensor) -> None:
        first, *others = self._exchange(tensor.detach().clone())
        with torch.no_grad():
            tensor.copy_(sum(others, first.clone()))

    def send_recv(self, tensor: Tensor, partner: int) -> Tensor:
        partners = self._exchange((partner, tensor.detach().clone()))
        assert partners[partner][0] == self.rank, "the partner names another process"
        other: Tensor = partners[partner][1]
        return other

    def broadcast(self, tensor: Tensor, source: int = 0) -> None:
        with torch.no_grad():
            tensor.copy_(self._exchange(tensor.detach().clone())[source])


def process_ranks(size: int, machines: int = 1) -> list[ProcessRank]:
    """Of processes on machines that have equally many, in the order of ranks."""
    local_size = size // machines
    return [ProcessRank(rank, size, rank % local_size, local_size) for rank in range(size)]


def in_threads(size: int, work: Callable[[ProcessGroup], Result], machines: int = 1) -> list[Result]:
    """What `work` returns in each thread of a group, by rank; raises the error of the first that has one of its own."""
    board, done, errors = Board(size), dict[int, Result](), dict[int, BaseException]()

    def run(process: ProcessRank) -> None:
        try:
            done[process.rank] = work(Threads(process, board))
        except BaseException as error:
            errors[process.rank] = error
            board.barrier.abort()

    threads = [threading.Thread(target=run, args=(process,)) for process in process_ranks(size, machines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next(
            (error for _, error in sorted(errors.items()) if not isinstance(error, ProcessLost)), errors[min(errors)]
        )
    return [done[rank] for rank in range(size)]

"""`--nproc P`: a command starts itself P times, and these processes divide its work."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

import typer

from mini_tf.cli.terminal.console import Console
from mini_tf.system.errors import DataFault, UsageFault
from mini_tf.system.processes import WorkerFault, is_worker

if TYPE_CHECKING:
    from mini_tf.data.tokenization.prompts import InputWarnings
    from mini_tf.parallel.group import ProcessGroup

Item = TypeVar("Item")
Result = TypeVar("Result")
TIMEOUT = 600.0
"""Longest wait for another process that does not answer, in seconds, as `runtime.timeout`."""


def several(nproc: int) -> bool:
    """Whether the command works in several processes, which `--nproc` or torchrun start."""
    return nproc > 1 or is_worker()


def refuse_stdin(nproc: int, reads_stdin: bool, hint: str = "give a file with -i FILE") -> None:
    """UsageFault if several processes would read stdin."""
    if several(nproc) and reads_stdin:
        raise UsageFault("several processes: stdin can be read by one process only", hint=hint)


def launched(console: Console, nproc: int) -> int | None:
    """The exit code of the processes that were started for this command; None in a process that does the work."""
    if nproc == 1 or is_worker():
        return None
    from mini_tf.parallel.launching import launch

    try:
        exit_code = launch(nproc, sys.argv[1:])
    except WorkerFault as fault:
        console.envelope = dict(fault.output)
        raise
    console.json = False  # rank 0 has printed the object
    return exit_code


def leave_to_rank_0(group: "ProcessGroup", exit_code: int = 0) -> None:
    """End the command on the other ranks, after the group's end; rank 0 goes on."""
    if not group.is_rank_0:
        raise typer.Exit(exit_code)


def group_of(timeout: float = TIMEOUT, on_gpu: bool = False) -> "AbstractContextManager[ProcessGroup]":
    """The processes that work together, as a context manager; usually only this one."""
    from mini_tf.parallel.torch_group import joined

    return joined(timeout, on_gpu)


def in_order(
    group: "ProcessGroup", items: Iterator[Item], work: Callable[[Item], Iterable[Result]], unread: "InputWarnings"
) -> Iterator[Result]:
    """`divided`, for a command that prints the results. unread: of this process, in the end of all."""
    from mini_tf.parallel.dividing import divided

    try:
        yield from divided(group, items, work)
    except (DataFault, UsageFault):
        unread.join(group)
        raise
    unread.join(group)

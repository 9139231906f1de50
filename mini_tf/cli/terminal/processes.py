"""`--nproc P`: a command starts itself P times, and these processes divide its work.

The console of one of them: rank 0 prints, and each leaves its error to the launcher, if it has one.
"""

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from mini_tf.cli.terminal.console import Console
from mini_tf.system.errors import DataFault, MinitfError, ProcessLost, Unavailable, UsageFault
from mini_tf.system.processes import FAULTS, WorkerFault, is_worker, launcher, process_rank, torchrun_ended, write_fault

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


WATCH = 0.5
"""Seconds from one look at the launcher to the next."""


class WorkerConsole(Console):
    """Started by torchrun, whose own exit code is 1 for every error, each process prints its error after its rank.

    A process whose launcher has ended would go on unseen, or wait for others: it saves if it trains, as after SIGTERM,
    and else ends at once.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.process, self._launcher = process_rank(), launcher()
        self._closed, self._closing = threading.Event(), threading.Lock()
        threading.Thread(target=self._watch_launcher, name="launcher", daemon=True).start()

    def close(self, exit_code: int, error: MinitfError | None = None) -> None:
        with self._closing:  # for ever, where the other thread ends the process
            self._closed.set()
        folder = os.environ.get(FAULTS)
        if self._launcher_ended():
            self._close_alone(exit_code, error, folder)
        elif error is not None and folder is not None:
            lost = isinstance(error, ProcessLost)
            write_fault(Path(folder), self.process.rank, error, exit_code=exit_code, lost=lost, output=self.envelope)
            if self.log is not None:
                self.log(error.message)
        else:
            self._close_last(exit_code, error)

    def _close_last(self, exit_code: int, error: MinitfError | None) -> None:
        super().close(exit_code, error)

    def _launcher_ended(self) -> bool:
        return os.getppid() != self._launcher

    def _watch_launcher(self) -> None:
        ended = torchrun_ended()
        while not ended and not self._closed.wait(WATCH):
            ended = self._launcher_ended()
        if not ended:
            return
        if callable(signal.getsignal(signal.SIGTERM)):  # training, which stops after the step
            os.kill(os.getpid(), signal.SIGTERM)
            return
        with self._closing:
            if not self._closed.is_set():
                try:
                    self._close_alone(Unavailable.exit_code, ProcessLost(""), os.environ.get(FAULTS))
                finally:
                    os._exit(Unavailable.exit_code)

    def _close_alone(self, exit_code: int, error: MinitfError | None, folder: str | None) -> None:
        """Print what the launcher would print, once on each machine, and remove its folder."""
        if isinstance(error, Unavailable):  # the others end for the same reason
            error = Unavailable(
                "the launcher of the processes ended", hint="the same command continues from the last checkpoint"
            )
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if self.process.local_rank == 0:
            super().close(exit_code, error)


class SilentConsole(WorkerConsole):
    """Of the other ranks: prints nothing but the error that ends it, after its rank."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.quiet = True

    def warn(self, line: str) -> None: ...
    def print_output(self, text: str, end: str = "\n") -> None: ...
    def emit_json(self, **options: Any) -> None: ...
    def show(self, picture: Any, *args: Any, **options: Any) -> None: ...

    def _close_last(self, exit_code: int, error: MinitfError | None) -> None:
        self.json = False
        if error is not None:
            super()._close_last(exit_code, type(error)(f"{self.process}: {error.message}", hint=error.hint))

    def _close_alone(self, exit_code: int, error: MinitfError | None, folder: str | None) -> None:
        self.json = False
        super()._close_alone(exit_code, error, folder)


def worker_console(**options: Any) -> WorkerConsole:
    """The console of this process, which a launcher has started as one of several."""
    return (SilentConsole if process_rank().rank > 0 else WorkerConsole)(**options)

"""Launch several processes of a command on this machine (`--nproc P`), and end all of them when one fails.

torch's elastic launcher would do most of this, but it listens on all network interfaces, waits 30 seconds for a process
that hangs, hides which one failed first and what it said, and imports torch once more. The processes find each other by
a file, and gloo listens on the loopback interface only. Without torch.
"""

import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from mini_tf.system.errors import Unavailable
from mini_tf.system.processes import FAULTS, JOINED, LAUNCHER, RENDEZVOUS, read_fault
from mini_tf.system.safe_files import temporary_path

GRACE = 5.0
"""Seconds from the first failure to SIGTERM for the others, which usually notice it themselves."""
LAST_GRACE = 30.0
"""Seconds from the first failure to SIGKILL. A stopped process (SIGSTOP) gets it after GRACE: it cannot end itself."""
_POLL = 0.05
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def launch(
    processes: int,
    arguments: Sequence[str],
    quiet: bool = False,
    watch: Callable[[Mapping[int, subprocess.Popen[bytes]]], None] = lambda running: None,
) -> int:
    """Run `python -m mini_tf ARGUMENTS` in several processes, and return their exit code.

    Stop signals are forwarded, so that all processes stop after the same step. quiet: nothing on stdout. watch: called
    all the time with the running processes by rank. Raises WorkerFault with the error of the process that failed first.
    """
    folder = temporary_path(Path(tempfile.gettempdir()) / "minitf")
    folder.mkdir(mode=0o700)
    workers = _Workers(folder)
    try:
        with _forwarding(workers):
            for rank in range(processes):
                workers.start(rank, processes, arguments, quiet)
            workers.wait(watch)
        return workers.exit_code()
    finally:
        workers.kill()
        shutil.rmtree(folder, ignore_errors=True)


def start(arguments: Sequence[str], folder: Path, lock: int) -> "subprocess.Popen[bytes]":
    """Start `python -m mini_tf ARGUMENTS` as one process that works by itself and prints nothing.

    folder: gets the error that ends it (`read_fault` of rank 0). lock: a descriptor, which stays locked as long as it
    runs. Stop signals of a terminal do not reach it. If this process is killed, it saves and ends.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "mini_tf", *arguments],
        env={**os.environ, LAUNCHER: str(os.getpid()), FAULTS: str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=[lock],
    )


class _End(NamedTuple):
    """How a process ended. ours: the launcher had told it to, after another one failed."""

    rank: int
    code: int
    ours: bool


@dataclass
class _Workers:
    """The processes by rank, and the ends of those that are over, in the order in which they were seen."""

    folder: Path
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    ends: list[_End] = field(default_factory=list)
    ending: bool = False
    asked: int = 0
    """The first stop signal that the launcher got; 0 is none."""

    @property
    def rendezvous(self) -> Path:
        return self.folder / "rendezvous"

    def start(self, rank: int, size: int, arguments: Sequence[str], quiet: bool) -> None:
        places = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size, LAUNCHER: os.getpid()}
        files = {RENDEZVOUS: str(self.rendezvous), FAULTS: str(self.folder)}
        worker = self.running[rank] = subprocess.Popen(
            [sys.executable, "-m", "mini_tf", *arguments],
            env={**os.environ, **{name: str(value) for name, value in places.items()}, **files},
            stdin=None if rank == 0 else subprocess.DEVNULL,
            stdout=None if rank == 0 and not quiet else subprocess.DEVNULL,
            start_new_session=True,  # otherwise Ctrl-C would reach each of them twice
        )
        if self.asked:  # while it was started
            worker.send_signal(self.asked)

    def wait(self, watch: Callable[[Mapping[int, subprocess.Popen[bytes]]], None]) -> None:
        """Until all have ended; after the first failure, the others have LAST_GRACE seconds."""
        failed_at = math.inf
        while self.running:
            time.sleep(_POLL)
            watch(self.running)
            for rank, worker in list(self.running.items()):
                if worker.poll() is not None:
                    self.ends.append(_End(rank, worker.returncode, self.ending))
                    del self.running[rank]
            if any(end.code for end in self.ends):
                failed_at = min(failed_at, time.monotonic())
            waited = time.monotonic() - failed_at
            if waited > LAST_GRACE:
                self.signal(signal.SIGKILL)
            elif waited > self.grace() and not self.ending:
                self.ending = True
                for worker in self.running.values():
                    worker.send_signal(signal.SIGKILL if _is_stopped(worker.pid) else signal.SIGTERM)

    def grace(self) -> float:
        """Seconds from the first failure to SIGTERM for the others: 0 if one was killed before all were connected.

        The others would wait for it. After an error they have time, since each of them may be about to report it.
        """
        killed = any(end.code < 0 for end in self.ends)
        return GRACE if not killed or Path(f"{self.rendezvous}{JOINED}").exists() else 0.0

    def signal(self, number: int) -> None:
        for worker in self.running.values():
            worker.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        for worker in self.running.values():
            worker.wait()

    def exit_code(self) -> int:
        """That of all; raises the error of the process that failed first.

        A process that only lost another one comes last: it does not know why.
        """
        faults = {end.rank: fault for end in self.ends if (fault := read_fault(self.folder, end.rank)) is not None}
        for rank, fault in faults.items():
            if not fault.lost:
                same = 0 in faults and faults[0].message == fault.message
                raise fault if same or rank == 0 else fault.of(f"rank {rank}")
        if self.asked and any(end.code == -self.asked for end in self.ends):  # before it could catch signals
            return 128 + self.asked
        for end in self.ends:
            if end.code < 0 and not end.ours and end.rank not in faults:
                message = f"rank {end.rank} was killed by signal {-end.code} ({_name_of(-end.code)})"
                raise Unavailable(message, hint="the same command continues from the last checkpoint")
        if faults:
            raise faults[min(faults)]
        return max((end.code for end in self.ends), default=0)


def _name_of(number: int) -> str:
    """The name of a signal, of a real-time one too."""
    named = {signal_.value: signal_.name for signal_ in signal.Signals}
    return named.get(number) or f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _is_stopped(process: int) -> bool:
    """Whether a process is stopped; False where the system does not tell (it has Linux's /proc)."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


@contextmanager
def _forwarding(workers: _Workers) -> Iterator[None]:
    """Stop signals of this process go to all workers."""

    def forward(number: int, frame: FrameType | None) -> None:
        workers.asked = workers.asked or number
        workers.signal(number)

    before = {
        number: signal.signal(number, forward)
        for number in _FORWARDED
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

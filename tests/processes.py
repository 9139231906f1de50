"""Several processes that work together: forks of this one, so that torch is imported once for all."""

import json
import os
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE
from types import SimpleNamespace
from typing import Any

from commands import Done, main_of_a_fork, minitf
from hang import ending
from warm import warm

from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.torch_group import joined
from mini_tf.system.processes import RENDEZVOUS


def forked(rank: int, size: int, work: Callable[[], object]) -> int:
    """A fork that does the work as one of `size` processes; its id. Its exit code is 1 where the work fails."""
    pid = os.fork()
    if pid == 0:
        code = 1
        warnings.resetwarnings()  # in pytest they are errors
        try:
            if size > 1:
                places = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
                os.environ.update({name: str(value) for name, value in places.items()})
            with ending():
                work()
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    return pid


class Command:
    """`minitf` in a fork that leads a session, with what is used of a subprocess.Popen.

    stdin, stdout, stderr: None is that of this process; PIPE is what `communicate` returns. prepare: done in the fork.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        prepare: Callable[[], object] = lambda: None,
    ) -> None:
        warm()
        self.returncode: int | None = None
        self.output = {n: tempfile.TemporaryFile("w+") for n, of in ((1, stdout), (2, stderr)) if of == PIPE}  # noqa: SIM115
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            warnings.resetwarnings()  # in pytest they are errors
            null = os.open(os.devnull, os.O_RDWR)
            for n, stream in enumerate((stdin, stdout, stderr)):
                if stream is not None:
                    special = {DEVNULL: null, PIPE: self.output.get(n, stream)}.get(stream, stream)
                    os.dup2(special if isinstance(special, int) else special.fileno(), n)
            prepare()
            main_of_a_fork(arguments, env)

    def poll(self, options: int = os.WNOHANG) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self) -> int | None:
        return self.poll(0)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: int) -> tuple[str, str]:
        with ending(timeout):
            self.wait()
        written = []
        for file in self.output.values():
            with file:
                file.seek(0)
                written.append(file.read())
        return written[0], written[1]


def launched_by_forks() -> SimpleNamespace:
    """A `subprocess` for mini_tf.parallel.launching whose processes are forks of this one."""

    def popen(command: Sequence[str], env: Mapping[str, str], stdin: Any, stdout: Any, **_: Any) -> Command:
        return Command(command[3:], env, stdin, stdout)

    return SimpleNamespace(Popen=popen, DEVNULL=DEVNULL)


def everywhere(size: int, work: Callable[[int, Path], Any], folder: Path) -> list[Any]:
    """What `work` returns in each of `size` processes, as JSON; None of one that was killed.

    It gets its rank and a folder, where paths are to be chosen for meetings: a file is for one group.
    """
    meeting = Path(tempfile.mkdtemp(dir=folder))

    def of(rank: int) -> Callable[[], None]:
        def told() -> None:
            found = work(rank, meeting)
            (meeting / f"rank-{rank}.json").write_text(json.dumps(found))

        return told

    started = [forked(rank, size, of(rank)) for rank in range(size)]
    try:
        with ending():
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in started]
    except BaseException:
        for pid in started:
            os.kill(pid, signal.SIGKILL)
        raise
    assert {*codes} <= {0, -signal.SIGKILL}
    return [
        None if code else json.loads((meeting / f"rank-{rank}.json").read_text()) for rank, code in enumerate(codes)
    ]


def in_processes(size: int, work: Callable[[ProcessGroup], Any], folder: Path) -> list[Any]:
    """What `work` returns, as JSON, in each of several processes that use torch.distributed."""

    def run(rank: int, meeting: Path) -> Any:
        os.environ[RENDEZVOUS] = str(meeting / "group")
        with joined(300) as group:
            return work(group)

    return everywhere(size, run, folder)


def together(size: int, lines: Sequence[Sequence[str]], folder: Path) -> list[list[Done]]:
    """Run the lines in `size` processes, in `folder`, one line after the other; what each did, by rank."""
    warm()

    def run(rank: int, meeting: Path) -> list[Done]:
        os.chdir(folder)
        done = []
        for number, line in enumerate(lines):
            os.environ[RENDEZVOUS] = str(meeting / str(number))
            done.append(minitf(*line))
        return done

    return [[Done(*one) for one in of_line] for of_line in zip(*everywhere(size, run, folder), strict=True)]

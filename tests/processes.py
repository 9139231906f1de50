"""Several processes that work together: forks of this one, so that torch is imported once for all."""

import json
import os
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from commands import Done, minitf
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

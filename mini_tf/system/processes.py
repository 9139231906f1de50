"""What a launcher tells a process by environment variables: which of several it is, and where all meet.

torchrun and batch systems set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. `--nproc`
sets the first four and three of its own, `sweep` the last two of these. No torch here: commands read this before they
import it. The error that ends one of several processes is a file for its launcher, which prints the one that came
first.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mini_tf.system import errors
from mini_tf.system.errors import MinitfError, Unavailable, UsageFault

RENDEZVOUS = "MINITF_RENDEZVOUS"
"""Path of the file where the processes of one machine meet; no port is opened."""
JOINED = ".joined"
"""Suffix of a file beside it that rank 0 makes once all are connected; from then on each notices when another ends."""
FAULTS = "MINITF_FAULTS"
"""Folder where each process writes the error that ends it, for the launcher to print."""
LAUNCHER = "MINITF_LAUNCHER"
"""Process id of the launcher."""


@dataclass(frozen=True)
class ProcessRank:
    """The rank of this process and the number of processes: of all, and of those on this machine."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    def __str__(self) -> str:
        return f"rank {self.rank}"


def is_worker() -> bool:
    """Whether a launcher has started this process as one of several."""
    return "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"


def is_trial() -> bool:
    """Whether a sweep has started this process, which trains beside others by itself."""
    return LAUNCHER in os.environ and not is_worker()


def launcher() -> int:
    """Process id of the launcher of this process, if it lives: a process whose parent ended gets another one."""
    return int(os.environ.get(LAUNCHER, os.getppid()))


def store_fault(timeout: float) -> OSError | None:
    """Why the store where all meet (MASTER_ADDR, MASTER_PORT) accepts no connection; None if it does, or is not named.

    timeout: seconds for one attempt.
    """
    import socket

    try:
        socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout).close()
    except OSError as error:
        return error
    except (KeyError, ValueError):  # torch reports it
        return None
    return None


def store_is_torchruns() -> bool:
    """Whether torchrun started this process, and has the store; else rank 0 has it."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def torchrun_ended() -> bool:
    """Whether torchrun started this process and has ended, maybe before `launcher`: it listens as long as it lives."""
    return store_is_torchruns() and isinstance(store_fault(timeout=5), ConnectionRefusedError)


def process_rank() -> ProcessRank:
    """The rank of this process; UsageFault if the variables are not sound."""
    if not is_worker():
        return ProcessRank()
    rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
    values = [rank, size, os.environ.get("LOCAL_RANK", rank), os.environ.get("LOCAL_WORLD_SIZE", size)]
    numbers = [int(value) if value.isdecimal() else -1 for value in values]
    if not 0 <= numbers[0] < numbers[1] or not 0 <= numbers[2] < numbers[3]:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        shown = ", ".join(f"{name}={value[:20]}" for name, value in zip(names, values, strict=True))
        fault = f"{shown}: a rank must be below the number of processes"
        raise UsageFault(fault, hint="start with --nproc or torchrun, or unset them")
    return ProcessRank(*numbers)


_FIELDS = ("message", "hint", "where", "faults")


class WorkerFault(Unavailable):
    """An error of another process, with its exit code.

    lost: it only says that yet another process is gone. output: what the process would have printed with --json.
    """

    def __init__(
        self,
        exit_code: int,
        message: str,
        *,
        lost: bool = False,
        output: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(message, **fields)
        self.exit_code, self.lost, self.output = exit_code, lost, output or {}

    def of(self, who: str) -> "WorkerFault":
        """The error, with the process that had it."""
        fields = {
            name: getattr(self, name)
            for name in ("hint", "where", "faults")
            if name != "faults" or len(self.faults) > 1
        }
        return WorkerFault(self.exit_code, f"{who}: {self.message}", output=self.output, **fields)


def write_fault(
    folder: Path, rank: int, error: MinitfError, *, exit_code: int, lost: bool, output: Mapping[str, Any]
) -> None:
    """Write the error of a process. exit_code: that of an interrupted process is not its error's."""
    facts = {"exit_code": exit_code, "lost": lost, "output": output, **_fields(error)}
    (folder / f"rank-{rank}.json").write_text(json.dumps(facts, default=str))


def read_fault(folder: Path, rank: int) -> WorkerFault | None:
    """The error that a process has written, if any."""
    path = folder / f"rank-{rank}.json"
    if not path.is_file():
        return None
    fields: Mapping[str, Any] = json.loads(path.read_text())
    return WorkerFault(**fields)


def fields_of(error: MinitfError) -> dict[str, Any]:
    """An error as JSON, for another process to raise (`error_of`)."""
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
    return {"kind": kind.__name__, **_fields(error)}


def error_of(fields: Mapping[str, Any]) -> MinitfError:
    """The error that another process described by `fields_of`."""
    error: MinitfError = getattr(errors, fields["kind"])(**{name: fields[name] for name in _FIELDS})
    return error


def same_error(error: MinitfError | None, fields: Mapping[str, Any]) -> MinitfError:
    """`error`, if that is what `fields` describes, else `error_of` them: this process keeps its traceback."""
    return error if error is not None and fields_of(error) == fields else error_of(fields)


def _fields(error: MinitfError) -> dict[str, Any]:
    values = {name: getattr(error, name) for name in _FIELDS}
    return {name: [*value] if isinstance(value, tuple) else value for name, value in values.items()}  # as JSON has them

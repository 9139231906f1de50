"""What a launcher tells a process by environment variables: which of several it is, and where all meet.

torchrun and batch systems set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. `--nproc`
sets the first four and three of its own. No torch here: commands read this before they import it.
"""

import os
import socket
from dataclasses import dataclass

from mini_tf.system.errors import UsageFault

RENDEZVOUS = "MINITF_RENDEZVOUS"
"""Path of the file where the processes of one machine meet; no port is opened."""
JOINED = ".joined"
"""Suffix of a file beside it that rank 0 makes once all are connected; from then on each notices when another ends."""
FAULTS = "MINITF_FAULTS"
"""Folder where each process writes the error that ends it, for the launcher to print."""
LAUNCHER = "MINITF_LAUNCHER"
"""Process id of the launcher."""


@dataclass(frozen=True)
class Place:
    """The number of this process, from 0, and the number of processes: of all, and of those on this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def is_worker() -> bool:
    """Whether a launcher has started this process as one of several."""
    return "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"


def launcher() -> int:
    """Process id of the launcher of this process, if it lives: a process whose parent ended gets another one."""
    return int(os.environ.get(LAUNCHER, os.getppid()))


def torchrun_ended() -> bool:
    """Whether torchrun started this process and has ended, maybe before `launcher`: it listens as long as it lives."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return False
    try:
        socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=5).close()
    except ConnectionRefusedError:
        return True
    except (OSError, KeyError, ValueError):  # torch reports it
        return False
    return False


def place() -> Place:
    """The place of this process; UsageFault if the variables are not sound."""
    if not is_worker():
        return Place()
    rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
    values = [rank, size, os.environ.get("LOCAL_RANK", rank), os.environ.get("LOCAL_WORLD_SIZE", size)]
    numbers = [int(value) if value.isdecimal() else -1 for value in values]
    if not 0 <= numbers[0] < numbers[1] or not 0 <= numbers[2] < numbers[3]:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        shown = ", ".join(f"{name}={value[:20]}" for name, value in zip(names, values, strict=True))
        raise UsageFault(f"{shown}: a rank must be below the number of processes", hint="start with --nproc or torchrun, or unset them")
    return Place(*numbers)

"""Checks that several processes train a tiny run to the same bytes as one does, though they are killed on the way."""

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mini_tf.jobs.resume_proof.forked_run import RECIPE, differences
from mini_tf.jobs.resume_proof.proof import temporary_folder
from mini_tf.parallel.launching import launch
from mini_tf.system.errors import MinitfError, Unavailable

KILLS = 3
OVERRIDES = (
    *(
        "runtime.device=cpu",
        "runtime.precision=fp32",
        "runtime.compile=false",
        "runtime.threads=1",
        "runtime.reduce=tree",
    ),
    *("train.micro_batch_size=1", "eval.baseline=false", "log.samples=0", "runtime.timeout=60"),
)


@dataclass(frozen=True)
class ProcessesProof:
    """processes: their number; seconds: of one process and of several, with start-up; kills: the rank and step of each.

    differs: file -> None if it is equal, else its first difference.
    """

    processes: int
    seconds: tuple[float, float]
    kills: list[tuple[int, int]]
    differs: dict[str, str | None]

    @property
    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def prove_processes(processes: int, say: Callable[[str], None], kills: int | None = None) -> ProcessesProof:
    """Train alone, then in several processes, of which one after another is killed by kill -9; compare all files.

    Raises Unavailable if the processes cannot be started or do not reach each other.
    """
    with temporary_folder() as folder:
        (folder / "recipe.yaml").write_text(RECIPE)
        alone, together = folder / "alone", folder / "together"
        single = _seconds(1, alone)
        say(f"one process took {single:.1f} s")
        killed = []
        for number in range(KILLS if kills is None else kills):
            rank = number % processes
            step = _kill(processes, together, rank)
            if step is None:  # it ended before
                break
            killed.append((rank, step))
            say(f"kill {number + 1}: rank {rank}, after the checkpoint of step {step}; all processes ended; continuing")
        several = _seconds(processes, together)
        return ProcessesProof(processes, (single, several), killed, differences(together, alone))


def _seconds(processes: int, folder: Path) -> float:
    start = time.monotonic()
    try:
        exit_code = launch(processes, _arguments(folder), quiet=True)
    except MinitfError as fault:
        raise Unavailable(f"a run of {processes} processes failed: {fault.message}", hint=fault.hint) from fault
    if exit_code:
        raise Unavailable(f"a run of {processes} processes ended with exit code {exit_code}")
    return time.monotonic() - start


def _kill(processes: int, folder: Path, rank: int) -> int | None:
    """Start or continue the run, and kill one process after the next checkpoint; its step, None if there was none."""
    before, killed = _steps(folder), list[int]()

    def watch(running: Mapping[int, Any]) -> None:
        new = _steps(folder) - before
        if new and not killed and len(running) == processes:
            running[rank].send_signal(signal.SIGKILL)
            killed.append(max(new))

    try:
        launch(processes, _arguments(folder), quiet=True, watch=watch)
    except Unavailable as fault:
        if not killed:
            raise
        if f"rank {rank} was killed" not in fault.message:
            raise Unavailable(f"rank {rank} was killed, but the launcher says: {fault.message}") from fault
    return killed[0] if killed else None


def _arguments(folder: Path) -> list[str]:
    return ["pretrain", str(folder.parent / "recipe.yaml"), *OVERRIDES, "-q", "-d", str(folder)]


def _steps(folder: Path) -> set[int]:
    return {int(path.name.partition("-")[2]) for path in folder.glob("checkpoints/step-*")}

"""Checks that runs, killed with kill -9 and resumed, end byte-identical to an uninterrupted run.

`prove_resume` kills each run at a different time, one of them while it writes a checkpoint; `prove_processes` kills one
of several processes, and compares with the run of one.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mini_tf.jobs.forked_run import COMPARED, RECIPE, Failed, ForkedRun, differences, temporary_folder
from mini_tf.jobs.messages import Reporter
from mini_tf.jobs.run_sets import members
from mini_tf.parallel.launching import launch
from mini_tf.recipe.reading import Resolved
from mini_tf.run import manifest
from mini_tf.run.identity import resolve
from mini_tf.system.errors import MinitfError, Unavailable, UsageFault

SECONDS = 20.0
MIN_KILLS = 3
SAVE_TRIES = 5
"""Maximum number of attempts to kill a run while it writes a checkpoint, which takes milliseconds."""
PROCESSES_KILLED = 3
OVERRIDES = (
    *("runtime.device=cpu", "runtime.precision=fp32", "runtime.compile=false", "runtime.threads=1"),
    *("runtime.reduce=tree", "runtime.timeout=60", "train.micro_batch_size=1", "eval.baseline=false", "log.samples=0"),
)
"""Settings of the runs in one and in several processes."""


@dataclass(frozen=True)
class Kill:
    """One killed run. seconds: from start to kill; found: its state then; inside_save: while writing a checkpoint.

    differs: by COMPARED file, None or the first difference from the uninterrupted run. failed: error on resuming.
    """

    seconds: float
    found: str
    inside_save: bool
    differs: dict[str, str | None]
    failed: str | None = None


@dataclass(frozen=True)
class ResumeProof:
    """seconds: of the uninterrupted run; auto: its machine settings.

    repeats: if there are differences, whether two uninterrupted runs are equal on this machine; else None.
    """

    steps: int
    seconds: float
    auto: dict[str, Any]
    kills: list[Kill]
    repeats: bool | None = None

    @property
    def first_difference(self) -> str | None:
        """The killed run, the file and the place in it; None if all bytes are equal."""
        for number, kill in enumerate(self.kills, start=1):
            if kill.failed is not None:
                return f"kill {number} ({kill.found}): the resumed run failed with {kill.failed}"
            for name, place in kill.differs.items():
                if place is not None:
                    return f"kill {number} ({kill.found}): {name} differs, first in {place}"
        return None

    @property
    def as_json(self) -> dict[str, Any]:
        """The fields, and `equal`."""
        return {**asdict(self), "equal": self.first_difference is None}


def prove_resume(
    reporter: Reporter, say: Callable[[str], None], recipe: str | None = None, settings: Sequence[str] = ()
) -> ResumeProof:
    """Kill and resume as many runs as fit into SECONDS, at least MIN_KILLS. reporter: of the runs; say: for progress.

    recipe: default a tiny one. Raises RecipeFault, UsageFault for a recipe whose length is a time or that is a set of
    runs, Unavailable if the system cannot fork, another check is running, or an uninterrupted run fails.
    """
    if not hasattr(os, "fork"):
        raise Unavailable("doctor --resume forks processes, which this system cannot do", hint="use Linux or macOS")
    start = time.monotonic()
    if recipe is not None:
        _refuse_unrepeatable(resolve(recipe, settings))
    with temporary_folder() as folder:
        (folder / "tiny.yaml").write_text(RECIPE)
        recipe_ = recipe or folder / "tiny.yaml"
        reference = ForkedRun(folder / "uninterrupted", recipe_, settings, reporter)
        seconds = _run_uninterrupted(reference)
        record = manifest.read(reference.folder)
        keys = ("device", "precision", "compile", "threads")
        overrides = [f"runtime.{key}={str(record.auto[key]).lower()}" for key in keys]
        overrides.append(f"train.micro_batch_size={record.auto['micro_batch_size']}")  # `auto` depends on timings
        say(f"an uninterrupted run of {record.step} steps took {seconds:.1f} s; now killing and resuming the same run")
        kills: list[Kill] = []
        for number, moment in enumerate(_moments(seconds, kills), start=1):
            run = ForkedRun(folder / f"killed-{number}", recipe_, [*settings, *overrides], reporter)
            if kill := _kill_and_resume(run, moment, reference):
                kills.append(kill)
                say(f"kill {len(kills)}: {kill.found}, {kill.seconds:.1f} s after the start; {_outcome(kill)}")
            shutil.rmtree(run.root)
            enough = len(kills) >= MIN_KILLS and (number >= SAVE_TRIES or any(kill.inside_save for kill in kills))
            if enough and time.monotonic() - start + 1.5 * seconds > SECONDS:
                break
        result = ResumeProof(record.step, seconds, record.auto, kills)
        if result.first_difference is None:
            return result
        again = "running once more without interruption to check that this machine is deterministic"
        say(f"a difference was found; {again}")
        repetition = ForkedRun(folder / "repetition", recipe_, [*settings, *overrides], reporter)
        _run_uninterrupted(repetition)
        return replace(result, repeats=not any(differences(repetition.folder, reference.folder).values()))


def _refuse_unrepeatable(resolved: Resolved) -> None:
    if resolved.recipe.train.time is not None:
        raise UsageFault("doctor --resume: two runs of train.time end at other steps", hint="set train.steps=40")
    if members(resolved):
        hint = "set train.seeds=1, and data.split to a share"
        raise UsageFault("doctor --resume: the recipe is a set of runs", hint=hint)


def _moments(seconds: float, kills: list[Kill]) -> Iterator[float | None]:
    """Times of kills: None (during a save) until one succeeds, then 1/2, 1/4, 3/4, 1/8, ... of `seconds`."""
    for _ in range(SAVE_TRIES):
        if not any(kill.inside_save for kill in kills):
            yield None
    number = 0
    while True:
        number += 1
        digits = f"{number:b}"
        yield seconds * int(digits[::-1], 2) / 2 ** len(digits)


def _kill_and_resume(run: ForkedRun, moment: float | None, reference: ForkedRun) -> Kill | None:
    """None if the run ended before it could be killed."""
    killed = run.kill(moment)
    if killed is None:
        return None
    try:
        run.run()
    except Failed as failed:
        return Kill(*killed, dict.fromkeys(COMPARED), str(failed))
    return Kill(*killed, differences(run.folder, reference.folder))


def _run_uninterrupted(run: ForkedRun) -> float:
    """The seconds of the run; raises Unavailable if it fails."""
    try:
        return run.run()
    except Failed as failed:
        raise Unavailable(f"an uninterrupted run failed with {failed}") from failed


def _outcome(kill: Kill) -> str:
    if kill.failed is not None:
        return f"the resumed run FAILED with {kill.failed}"
    different = [name for name, place in kill.differs.items() if place is not None]
    return f"{', '.join(different)} DIFFERENT after resuming" if different else "byte-identical after resuming"


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
        single = _run_processes(1, alone)
        say(f"one process took {single:.1f} s")
        killed = []
        for number in range(PROCESSES_KILLED if kills is None else kills):
            rank = number % processes
            step = _kill_rank(processes, together, rank)
            if step is None:  # it ended before
                break
            killed.append((rank, step))
            say(f"kill {number + 1}: rank {rank}, after the checkpoint of step {step}; all processes ended; continuing")
        several = _run_processes(processes, together)
        return ProcessesProof(processes, (single, several), killed, differences(together, alone))


def _run_processes(processes: int, folder: Path) -> float:
    start = time.monotonic()
    try:
        exit_code = launch(processes, _command(folder), quiet=True)
    except MinitfError as fault:
        raise Unavailable(f"a run of {processes} processes failed: {fault.message}", hint=fault.hint) from fault
    if exit_code:
        raise Unavailable(f"a run of {processes} processes ended with exit code {exit_code}")
    return time.monotonic() - start


def _kill_rank(processes: int, folder: Path, rank: int) -> int | None:
    """Start or continue the run, and kill one process after the next checkpoint; its step, None if there was none."""
    before, killed = _saved_steps(folder), list[int]()

    def watch(running: Mapping[int, Any]) -> None:
        new = _saved_steps(folder) - before
        if new and not killed and len(running) == processes:
            running[rank].send_signal(signal.SIGKILL)
            killed.append(max(new))

    try:
        launch(processes, _command(folder), quiet=True, watch=watch)
    except Unavailable as fault:
        if not killed:
            raise
        if f"rank {rank} was killed" not in fault.message:
            raise Unavailable(f"rank {rank} was killed, but the launcher says: {fault.message}") from fault
    return killed[0] if killed else None


def _command(folder: Path) -> list[str]:
    return ["pretrain", str(folder.parent / "recipe.yaml"), *OVERRIDES, "-q", "-d", str(folder)]


def _saved_steps(folder: Path) -> set[int]:
    return {int(path.name.partition("-")[2]) for path in folder.glob("checkpoints/step-*")}

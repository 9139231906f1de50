"""Small runs, killed by kill -9 and continued, must end with the same bytes as an uninterrupted run.

Each run is killed at another moment of the total time, one of them during a save, and compared byte by byte.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mini_tf.jobs.resume_proof.comparison import COMPARED, differences
from mini_tf.jobs.resume_proof.killed_run import Failed, KilledRun
from mini_tf.jobs.session import Reporter
from mini_tf.run import manifest
from mini_tf.run.finding import try_to_hold
from mini_tf.system.cache import cache_folder
from mini_tf.system.errors import Unavailable

SECONDS = 20.0
LEAST_KILLS = 3
SAVE_TRIES = 5
"""Runs spent at most on hitting a save, which takes a few milliseconds."""


@dataclass(frozen=True)
class Kill:
    """One killed run. seconds: after its start; found: its progress on disk; inside_save: a checkpoint was being
    written.

    differs: for each of the COMPARED files None, or the first place that differs from the uninterrupted run.
    failed: the error of the continuation, if it failed.
    """

    seconds: float
    found: str
    inside_save: bool
    differs: dict[str, str | None]
    failed: str | None = None


@dataclass(frozen=True)
class Rehearsal:
    """seconds: of the uninterrupted run; auto: its setup. repeats: None while all is equal, else whether two
    uninterrupted runs are equal.
    """

    steps: int
    seconds: float
    auto: dict[str, Any]
    kills: list[Kill]
    repeats: bool | None = None

    @property
    def first_difference(self) -> str | None:
        """The first difference: run, file and place; None if all bytes are equal."""
        for number, kill in enumerate(self.kills, start=1):
            if kill.failed is not None:
                return f"kill {number} ({kill.found}): the continuation failed with {kill.failed}"
            for name, place in kill.differs.items():
                if place is not None:
                    return f"kill {number} ({kill.found}): {name} differs, first in {place}"
        return None


def rehearse(reporter: Reporter, say: Callable[[str], None]) -> Rehearsal:
    """Kill as many runs as fit into SECONDS, at least LEAST_KILLS; reporter: of the runs; say: called for each.

    Raises Unavailable if processes cannot be forked, another test is running, or an uninterrupted run fails.
    """
    if not hasattr(os, "fork"):
        raise Unavailable("doctor --resume forks processes, which this system cannot do", hint="it works on Linux and macOS")
    began = time.monotonic()
    with _stage() as stage:
        whole = KilledRun(stage, "whole", reporter)
        seconds = _undisturbed(whole)
        record = manifest.read(whole.folder)
        same = [f"runtime.{key}={str(record.auto[key]).lower()}" for key in ("device", "precision", "compile", "threads")]
        same.append(
            f"train.micro_batch_size={record.auto['micro_batch_size']}"
        )  # `auto` measures, so another cache may give other settings
        say(f"an uninterrupted run of {record.step} steps took {seconds:.1f} s; now killed runs")
        kills: list[Kill] = []
        for number, moment in enumerate(_moments(seconds, kills), start=1):
            trial = KilledRun(stage, f"killed-{number}", reporter, same)
            if kill := _killed(trial, moment, whole):
                kills.append(kill)
                say(f"kill {len(kills)}: {kill.found}, {kill.seconds:.1f} s after the start; {_outcome(kill)}")
            shutil.rmtree(trial.place)
            enough = len(kills) >= LEAST_KILLS and (number >= SAVE_TRIES or any(kill.inside_save for kill in kills))
            if enough and time.monotonic() - began + 1.5 * seconds > SECONDS:
                break
        result = Rehearsal(record.step, seconds, record.auto, kills)
        if result.first_difference is None:
            return result
        say("a difference; checking whether uninterrupted runs are equal")
        again = KilledRun(stage, "again", reporter, same)
        _undisturbed(again)
        return replace(result, repeats=not any(differences(again.folder, whole.folder).values()))


def _moments(seconds: float, kills: list[Kill]) -> Iterator[float | None]:
    """When to kill: during a save (None) until that succeeded, then 1/2, 1/4, 3/4, 1/8, ... of the total time."""
    for _ in range(SAVE_TRIES):
        if not any(kill.inside_save for kill in kills):
            yield None
    number = 0
    while True:
        number += 1
        digits = f"{number:b}"
        yield seconds * int(digits[::-1], 2) / 2 ** len(digits)


def _killed(trial: KilledRun, moment: float | None, whole: KilledRun) -> Kill | None:
    """The killed and continued run; None if it ended before it could be killed."""
    met = trial.kill(moment)
    if met is None:
        return None
    after, found, inside = met
    try:
        trial.run()
    except Failed as failed:
        return Kill(after, found, inside, dict.fromkeys(COMPARED), str(failed))
    return Kill(after, found, inside, differences(trial.folder, whole.folder))


def _undisturbed(trial: KilledRun) -> float:
    """Seconds of an uninterrupted run; Unavailable if it fails."""
    try:
        return trial.run()
    except Failed as failed:
        raise Unavailable(f"a test run failed with {failed}") from failed


def _outcome(kill: Kill) -> str:
    if kill.failed is not None:
        return f"the continuation FAILED with {kill.failed}"
    different = [name for name, place in kill.differs.items() if place is not None]
    return f"{', '.join(different)} DIFFERENT" if different else "identical files"


@contextmanager
def _stage() -> Iterator[Path]:
    """The folder of all runs, in the cache; remains of a killed test are removed."""
    stage = cache_folder() / "rehearsal"
    stage.mkdir(exist_ok=True)
    lock = try_to_hold(stage)
    if lock is None:
        raise Unavailable(f"{stage} is in use by another `doctor --resume`", hint="wait until it is done")
    try:
        for left in stage.iterdir():
            shutil.rmtree(left)
        yield stage
    finally:
        shutil.rmtree(stage)
        os.close(lock)


def as_json(rehearsal: Rehearsal) -> dict[str, Any]:
    """The result as JSON."""
    return {**asdict(rehearsal), "equal": rehearsal.first_difference is None}

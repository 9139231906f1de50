"""Tiny runs on this machine, killed with kill -9 and started again, must end with the same bytes as one that nobody kills.

Every killed run has its own moment of the wall time that the whole one took, one of them inside a save. It is compared with
the whole one byte by byte.
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
from mini_tf.run.finding import try_lock
from mini_tf.system.cache import cache_folder
from mini_tf.system.errors import Unavailable

SECONDS = 20.0
LEAST_KILLS = 3
SAVE_TRIES = 5
"""Runs that may be spent on meeting a save, which takes some milliseconds."""


@dataclass(frozen=True)
class Kill:
    """One killed run. seconds: after its start; found: how far it was, in words; inside_save: it had begun to write a checkpoint.

    differs: for each of the COMPARED files of the run's end None, or where it first is another than that of the whole run.
    failed: what the same command said where it could not go on.
    """

    seconds: float
    found: str
    inside_save: bool
    differs: dict[str, str | None]
    failed: str | None = None


@dataclass(frozen=True)
class Rehearsal:
    """seconds: that the run took which nobody killed; auto: what it computed with. repeats: None as long as all is equal, else
    whether at least two runs that nobody kills agree here."""

    steps: int
    seconds: float
    auto: dict[str, Any]
    kills: list[Kill]
    repeats: bool | None = None

    @property
    def first_difference(self) -> str | None:
        """Which killed run, file and place; None where every byte is equal."""
        for number, kill in enumerate(self.kills, start=1):
            if kill.failed is not None:
                return f"kill {number} ({kill.found}): the same command failed with {kill.failed}"
            for name, place in kill.differs.items():
                if place is not None:
                    return f"kill {number} ({kill.found}): {name} differs, first in {place}"
        return None


def rehearse(reporter: Reporter, say: Callable[[str], None]) -> Rehearsal:
    """Kill as many runs as fit into SECONDS, at least LEAST_KILLS; `reporter` is that of the runs, `say` is told of each.

    Raises Unavailable where processes cannot be forked, a rehearsal is under way already, or a run fails that nobody killed.
    """
    if not hasattr(os, "fork"):
        raise Unavailable("doctor --resume forks processes, which this system cannot do", hint="it works on Linux and macOS")
    began = time.monotonic()
    with _stage() as stage:
        whole = KilledRun(stage, "whole", reporter)
        seconds = _undisturbed(whole)
        record = manifest.read(whole.folder)
        same = [f"runtime.{key}={str(record.auto[key]).lower()}" for key in ("device", "precision", "compile", "threads")]
        same.append(f"train.micro_batch_size={record.auto['micro_batch_size']}")  # `auto` asks the clock, which may answer otherwise
        say(f"a run of {record.step} steps without interruption took {seconds:.1f} s; now the same, killed")
        kills: list[Kill] = []
        for number, moment in enumerate(_moments(seconds, kills), start=1):
            trial = KilledRun(stage, f"killed-{number}", reporter, same)
            if kill := _killed(trial, moment, whole):
                kills.append(kill)
                say(f"kill {len(kills)}: {kill.found}, {kill.seconds:.1f} s after the start; {_verdict(kill)}")
            shutil.rmtree(trial.place)
            enough = len(kills) >= LEAST_KILLS and (number >= SAVE_TRIES or any(kill.inside_save for kill in kills))
            if enough and time.monotonic() - began + 1.5 * seconds > SECONDS:
                break
        result = Rehearsal(record.step, seconds, record.auto, kills)
        if result.first_difference is None:
            return result
        say("something differs; does a run without interruption repeat itself here?")
        again = KilledRun(stage, "again", reporter, same)
        _undisturbed(again)
        return replace(result, repeats=not any(differences(again.folder, whole.folder).values()))


def _moments(seconds: float, kills: list[Kill]) -> Iterator[float | None]:
    """When to kill: inside a save (None) until that was met, then 1/2, 1/4, 3/4, 1/8, ... of the wall time, ever more evenly spread."""
    for _ in range(SAVE_TRIES):
        if not any(kill.inside_save for kill in kills):
            yield None
    number = 0
    while True:
        number += 1
        digits = f"{number:b}"
        yield seconds * int(digits[::-1], 2) / 2 ** len(digits)


def _killed(trial: KilledRun, moment: float | None, whole: KilledRun) -> Kill | None:
    """None where the run had ended before its moment came."""
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
    """The seconds of a run that nobody kills; Unavailable where even that fails."""
    try:
        return trial.run()
    except Failed as failed:
        raise Unavailable(f"a run of the rehearsal failed with {failed}") from failed


def _verdict(kill: Kill) -> str:
    if kill.failed is not None:
        return f"the same command FAILED with {kill.failed}"
    different = [name for name, place in kill.differs.items() if place is not None]
    return f"{', '.join(different)} DIFFERENT after that" if different else "the same bytes in the end"


@contextmanager
def _stage() -> Iterator[Path]:
    """The one folder for all runs, in the cache; what a rehearsal left there that was killed itself goes first."""
    stage = cache_folder() / "rehearsal"
    stage.mkdir(exist_ok=True)
    lock = try_lock(stage)
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
    """All of it for scripts."""
    return {**asdict(rehearsal), "equal": rehearsal.first_difference is None}

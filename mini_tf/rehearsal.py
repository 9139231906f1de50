"""A rehearsal of the worst: tiny runs on this machine, killed with kill -9 and started again, must end with the same bytes.

One run is never interrupted; every other is killed at its own moment of the wall time that the first one took, one of them
inside a save, started again with the same command, and compared with the first byte by byte. Each run is a fork of this
process, which has torch imported but has not computed anything: GNU's OpenMP cannot be used after a fork once it ran in the
parent, and CUDA cannot either.
"""

import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import safetensors.numpy

import mini_tf.drawing.loss_curve  # noqa: F401  every fork would import it anew: a second each
from mini_tf.errors import Unavailable
from mini_tf.pretrain import Options, pretrain
from mini_tf.recipe import reading
from mini_tf.run import manifest
from mini_tf.run.disk import TEMPORARY
from mini_tf.run.finding import try_to_hold
from mini_tf.run.opening import Place
from mini_tf.session import Voice
from mini_tf.text.sources import cache_folder

RECIPE = """\
data: {train: grammar, split: 0.2%}
tokenizer: {kind: char}
model: {kind: decoder, d_model: 64, n_layers: 2, n_heads: 4, dropout_rate: 0.1}
optimizer: {lr: 5e-3}
train: {steps: 120, batch_size: 8, context: 64}
eval: {every_steps: 15, tokens: 2k}
checkpoint: {every_steps: 6}
log: {every_steps: 1}
generate: {max_new_tokens: 16}
"""
SECONDS = 20.0
LEAST_KILLS = 3
SAVE_TRIES = 5
"""Runs that may be spent on meeting a save, which takes some milliseconds."""
COMPARED = ("metrics.jsonl", "model.safetensors", "optimizer.safetensors")


@dataclass(frozen=True)
class Kill:
    """One killed run. seconds: after its start; found: how far it was, in words; inside_save: it had begun to write a checkpoint.

    differs: for each of the COMPARED files of the run's end None, or where it first is another than that of the whole run.
    """

    seconds: float
    found: str
    inside_save: bool
    differs: dict[str, str | None]


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
            for name, place in kill.differs.items():
                if place is not None:
                    return f"kill {number} ({kill.found}): {name} differs, first in {place}"
        return None


def rehearse(voice: Voice, say: Callable[[str], None]) -> Rehearsal:
    """Kill as many runs as fit into SECONDS, at least LEAST_KILLS; `voice` is that of the runs, `say` is told of each.

    Raises Unavailable where processes cannot be forked, a rehearsal is under way already, or a run fails that nobody killed.
    """
    if not hasattr(os, "fork"):
        raise Unavailable("doctor --resume forks processes, which this system cannot do", hint="it works on Linux and macOS")
    began = time.monotonic()
    with _stage() as stage:
        whole = _Trial(stage, "whole", voice)
        seconds = whole.run()
        record = manifest.read(whole.folder)
        say(f"a run of {record.step} steps without interruption took {seconds:.1f} s; now the same, killed")
        kills: list[Kill] = []
        for number, moment in enumerate(_moments(seconds, kills), start=1):
            trial = _Trial(stage, f"killed-{number}", voice)
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
        again = _Trial(stage, "again", voice)
        again.run()
        return Rehearsal(record.step, seconds, record.auto, kills, not any(_differences(again.folder, whole.folder).values()))


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


def _killed(trial: "_Trial", moment: float | None, whole: "_Trial") -> Kill | None:
    """None where the run had ended before its moment came."""
    met = trial.kill(moment)
    if met is None:
        return None
    after, found, inside = met
    trial.run()
    return Kill(after, found, inside, _differences(trial.folder, whole.folder))


def _verdict(kill: Kill) -> str:
    different = [name for name, place in kill.differs.items() if place is not None]
    return f"{', '.join(different)} DIFFERENT after that" if different else "the same bytes in the end"


@contextmanager
def _stage() -> Iterator[Path]:
    """The one folder for all runs, in the cache; what a rehearsal left there that was killed itself goes first."""
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


class _Trial:
    """One run with a folder and a cache of its own, so that it reads and encodes its text itself."""

    def __init__(self, stage: Path, name: str, voice: Voice) -> None:
        self.place, self.voice = stage / name, voice
        self.folder, self._log = self.place / "run", self.place / "said.txt"
        self.place.mkdir()
        (self.place / "rehearsal.yaml").write_text(RECIPE)

    def run(self) -> float:
        """From where it stands to the end; how long that took."""
        began = time.monotonic()
        with self._forked() as child:
            _, status = os.waitpid(child.pid, 0)
            child.ended = True
        if status:
            last = (self._log.read_text(errors="replace").splitlines() or ["it said nothing"])[-1]
            raise Unavailable(f"a run of the rehearsal failed with exit code {os.waitstatus_to_exitcode(status)}: {last[:300]}")
        return time.monotonic() - began

    def kill(self, moment: float | None) -> tuple[float, str, bool] | None:
        """kill -9 so many seconds after the start, None: as soon as a save has begun that is not the first.

        Seconds when that was, what was found then, and whether a save had begun; None where the run had ended already.
        """
        began = time.monotonic()
        with self._forked() as child:
            while (time.monotonic() - began < moment) if moment is not None else not (self._saving() and self._saved()):
                if os.waitpid(child.pid, os.WNOHANG)[0]:
                    child.ended = True
                    return None
                time.sleep(1e-4)
            after = time.monotonic() - began
        return after, self._found(), bool(self._saving())

    @contextmanager
    def _forked(self) -> "Iterator[_Child]":
        """The run in a process of its own; killed when the block is left, unless it has ended."""
        sys.stdout.flush()
        sys.stderr.flush()
        child = _Child(os.fork())
        if child.pid == 0:
            self._live()
        try:
            yield child
        finally:
            if not child.ended:
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)

    def _live(self) -> NoReturn:
        """What the fork does; it never returns into what the parent was doing."""
        exit_code = 1
        try:
            said = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(said, 1)
            os.dup2(said, 2)
            os.environ["MINITF_CACHE"] = str(self.place / "cache")
            exit_code = pretrain(reading.read(self.place / "rehearsal.yaml"), Options(Place(self.folder)), self.voice).exit_code
        except BaseException as error:
            os.write(2, "".join(traceback.format_exception(error)).encode(errors="backslashreplace"))
        finally:
            os._exit(exit_code)

    def _saving(self) -> list[str]:
        return [name for name in _names(self.folder / "checkpoints") if name.startswith(f"{TEMPORARY}step-")]

    def _saved(self) -> list[str]:
        return sorted(name for name in _names(self.folder / "checkpoints") if name.startswith("step-"))

    def _found(self) -> str:
        if unfinished := self._saving():
            return f"inside the save of step {_step(unfinished[0])}"
        if saved := self._saved():
            return f"step {_step(saved[-1])} saved"
        return "nothing saved yet" if (self.folder / manifest.NAME).exists() else "no run folder yet"


@dataclass
class _Child:
    pid: int
    ended: bool = False


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _step(name: str) -> int:
    return int(name.rpartition("-")[2])


def _differences(one: Path, other: Path) -> dict[str, str | None]:
    """For each of the COMPARED files of two finished runs: None where all bytes are equal, else the first place that differs."""
    return {name: _first_difference(_file(one, name), _file(other, name)) for name in COMPARED}


def _file(run: Path, name: str) -> Path:
    last = f"checkpoints/step-{manifest.read(run).step:08d}"
    return run / last / name if name == "optimizer.safetensors" else run / name


def _first_difference(one: Path, other: Path) -> str | None:
    first, second = one.read_bytes(), other.read_bytes()
    if first == second:
        return None
    if one.suffix == ".jsonl":
        lines = zip(first.splitlines(), second.splitlines(), strict=False)
        number = next((n for n, (a, b) in enumerate(lines, start=1) if a != b), min(first.count(b"\n"), second.count(b"\n")) + 1)
        return f"line {number}"
    tensors, others = safetensors.numpy.load(first), safetensors.numpy.load(second)
    names = sorted(tensors.keys() | others.keys())
    unequal = (n for n in names if n not in tensors or n not in others or tensors[n].tobytes() != others[n].tobytes())
    return next((f"tensor {name}" for name in unequal), "its header")


def as_json(rehearsal: Rehearsal) -> dict[str, Any]:
    """All of it for scripts."""
    kills = [vars(kill) for kill in rehearsal.kills]
    return {**vars(rehearsal), "kills": kills, "equal": rehearsal.first_difference is None}

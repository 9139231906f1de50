"""A run in a fork of this process, which can be killed at any moment and resumed.

The parent process has imported torch but computed nothing: GNU OpenMP and CUDA fail in a fork after use in the parent.
"""

import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import glob
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

import safetensors.numpy

import mini_tf.drawing.curves  # noqa: F401  imported once here rather than in every fork, which takes a second
from mini_tf.jobs.assembling import Options
from mini_tf.jobs.messages import Reporter
from mini_tf.jobs.pretrain import pretrain
from mini_tf.recipe import reading
from mini_tf.run import manifest
from mini_tf.run.disk import TEMPORARY
from mini_tf.run.finding import try_lock
from mini_tf.run.location import RunLocation
from mini_tf.system.cache import cache_folder
from mini_tf.system.errors import MinitfError, Unavailable

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


class Failed(Exception):
    """A run ended with an error; the message has its exit code and its last output line."""


class ForkedRun:
    """A run with its own run folder and cache folder, so that it tokenizes its data itself."""

    def __init__(self, root: Path, recipe: str | Path, overrides: Sequence[str], reporter: Reporter) -> None:
        self.root, self.reporter, self.recipe, self.overrides = root, reporter, recipe, overrides
        self.folder, self._log = self.root / "run", self.root / "output.txt"
        self.root.mkdir()

    def run(self) -> float:
        """Start or resume the run, to its end; returns its seconds, raises Failed."""
        start = time.monotonic()
        with self._forked() as child:
            child.join()
        if child.exitcode:
            last = (self._log.read_text(errors="replace").splitlines() or ["no output"])[-1]
            raise Failed(f"exit code {child.exitcode}: {last[:300]}")
        return time.monotonic() - start

    def kill(self, moment: float | None) -> tuple[float, str, bool] | None:
        """Kill the run `moment` seconds after its start; None: as soon as it writes a checkpoint other than its first.

        Returns the seconds, the state of the run folder in words, and whether it was writing a checkpoint; None if it
        had ended.
        """
        start = time.monotonic()
        with self._forked() as child:
            while (time.monotonic() - start < moment) if moment is not None else not (self._saving() and self._saved()):
                if not child.is_alive():
                    return None
                time.sleep(1e-4)
            seconds = time.monotonic() - start
        return seconds, self._state(), bool(self._saving())

    @contextmanager
    def _forked(self) -> Iterator[BaseProcess]:
        """The run in a forked process; killed at the end of the block if still running."""
        child = get_context("fork").Process(target=self._run_in_fork)
        child.start()
        try:
            yield child
        finally:
            child.kill()
            child.join()

    def _run_in_fork(self) -> NoReturn:
        output = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ["MINITF_CACHE"] = str(self.root / "cache")
        try:
            resolved = reading.read(self.recipe, self.overrides)
            sys.exit(pretrain(resolved, Options(RunLocation(self.folder)), self.reporter).exit_code)
        except MinitfError as error:
            sys.stderr.write(f"{error.message}\n")
            sys.exit(error.exit_code)

    def _saving(self) -> list[str]:
        return glob(f"{TEMPORARY}step-*", root_dir=self.folder / "checkpoints")

    def _saved(self) -> list[str]:
        return sorted(glob("step-*", root_dir=self.folder / "checkpoints"))

    def _state(self) -> str:
        if unfinished := self._saving():
            return f"while saving step {_step(unfinished[0])}"
        if saved := self._saved():
            return f"step {_step(saved[-1])} saved"
        return "nothing saved yet" if (self.folder / manifest.NAME).exists() else "no run folder yet"


def _step(name: str) -> int:
    return int(name.rpartition("-")[2])


COMPARED = ("metrics.jsonl", "model.safetensors", "optimizer.safetensors")


def differences(run: Path, other: Path) -> dict[str, str | None]:
    """File name -> None if equal, else the line or tensor of the first difference, for the COMPARED files."""
    return {name: _first_difference(_file(run, name), _file(other, name)) for name in COMPARED}


def _file(run: Path, name: str) -> Path:
    checkpoint = f"checkpoints/step-{manifest.read(run).step:08d}"
    return run / checkpoint / name if name == "optimizer.safetensors" else run / name


def _first_difference(path: Path, other: Path) -> str | None:
    first, second = path.read_bytes(), other.read_bytes()
    if first == second:
        return None
    if path.suffix == ".jsonl":
        lines = zip(first.splitlines(), second.splitlines(), strict=False)
        shorter = min(first.count(b"\n"), second.count(b"\n"))
        return f"line {next((n for n, (a, b) in enumerate(lines, start=1) if a != b), shorter + 1)}"
    tensors, others = safetensors.numpy.load(first), safetensors.numpy.load(second)
    names = sorted(tensors.keys() | others.keys())
    unequal = (n for n in names if n not in tensors or n not in others or tensors[n].tobytes() != others[n].tobytes())
    return next((f"tensor {name}" for name in unequal), "its header")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """The folder of all runs, in the cache folder; first emptied of what a killed check left."""
    folder = cache_folder() / "resume-proof"
    folder.mkdir(exist_ok=True)
    lock = try_lock(folder)
    if lock is None:
        raise Unavailable(f"{folder} is in use by another `doctor --resume`", hint="wait until it is done")
    try:
        for leftover in folder.iterdir():
            shutil.rmtree(leftover)
        yield folder
    finally:
        shutil.rmtree(folder)
        os.close(lock)

"""One run of the test: a fork of this process that can be killed at any moment and continued.

The forking process has torch imported but has not computed anything: neither GNU's OpenMP nor CUDA can be used after a
fork once they ran in the parent.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import glob
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

import mini_tf.drawing.loss_curve  # noqa: F401  every fork would import it anew: a second each
from mini_tf.jobs.pretrain import Options, pretrain
from mini_tf.jobs.session import Reporter
from mini_tf.recipe import reading
from mini_tf.run import manifest
from mini_tf.run.disk import TEMPORARY
from mini_tf.run.opening import RunLocation

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
    """A run ended with this exit code and this last line."""


class KilledRun:
    """A run with its own folder and cache, so that it tokenizes its data itself."""

    def __init__(self, stage: Path, name: str, reporter: Reporter, overrides: Sequence[str] = ()) -> None:
        self.place, self.reporter, self.overrides = stage / name, reporter, overrides
        self.folder, self._log = self.place / "run", self.place / "said.txt"
        self.place.mkdir()
        (self.place / "rehearsal.yaml").write_text(RECIPE)

    def run(self) -> float:
        """Run or continue to the end; returns the seconds."""
        began = time.monotonic()
        with self._forked() as child:
            child.join()
        if child.exitcode:
            last = (self._log.read_text(errors="replace").splitlines() or ["no output"])[-1]
            raise Failed(f"exit code {child.exitcode}: {last[:300]}")
        return time.monotonic() - began

    def kill(self, moment: float | None) -> tuple[float, str, bool] | None:
        """kill -9 after so many seconds; None: as soon as a save that is not the first has begun.

        Returns seconds, what was found on disk, and whether a save had begun; None if the run had already ended.
        """
        began = time.monotonic()
        with self._forked() as child:
            while (time.monotonic() - began < moment) if moment is not None else not (self._saving() and self._saved()):
                if not child.is_alive():
                    return None
                time.sleep(1e-4)
            after = time.monotonic() - began
        return after, self._found(), bool(self._saving())

    @contextmanager
    def _forked(self) -> Iterator[BaseProcess]:
        """The run in a process of its own; killed at the end of the block if still alive."""
        child = get_context("fork").Process(target=self._live)
        child.start()
        try:
            yield child
        finally:
            child.kill()
            child.join()

    def _live(self) -> NoReturn:
        """The body of the fork; an error is printed as a traceback."""
        said = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.environ["MINITF_CACHE"] = str(self.place / "cache")
        resolved = reading.read(self.place / "rehearsal.yaml", self.overrides)
        sys.exit(pretrain(resolved, Options(RunLocation(self.folder)), self.reporter).exit_code)

    def _saving(self) -> list[str]:
        return glob(f"{TEMPORARY}step-*", root_dir=self.folder / "checkpoints")

    def _saved(self) -> list[str]:
        return sorted(glob("step-*", root_dir=self.folder / "checkpoints"))

    def _found(self) -> str:
        if unfinished := self._saving():
            return f"during the save of step {_step(unfinished[0])}"
        if saved := self._saved():
            return f"step {_step(saved[-1])} saved"
        return "nothing saved yet" if (self.folder / manifest.NAME).exists() else "no run folder yet"


def _step(name: str) -> int:
    return int(name.rpartition("-")[2])

"""One run of a rehearsal: a fork of this process, which may be killed at any moment and started again.

The process that forks has torch imported but has not computed anything: GNU's OpenMP cannot be used after a fork once it ran
in the parent, and CUDA cannot either.
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
    """A run ended with an exit code; says which, and the last that it said."""


class KilledRun:
    """One run with a folder and a cache of its own, so that it reads and encodes its text itself."""

    def __init__(self, stage: Path, name: str, reporter: Reporter, overrides: Sequence[str] = ()) -> None:
        self.place, self.reporter, self.overrides = stage / name, reporter, overrides
        self.folder, self._log = self.place / "run", self.place / "said.txt"
        self.place.mkdir()
        (self.place / "rehearsal.yaml").write_text(RECIPE)

    def run(self) -> float:
        """From where it stands to the end; how long that took."""
        began = time.monotonic()
        with self._forked() as child:
            child.join()
        if child.exitcode:
            last = (self._log.read_text(errors="replace").splitlines() or ["it said nothing"])[-1]
            raise Failed(f"exit code {child.exitcode}: {last[:300]}")
        return time.monotonic() - began

    def kill(self, moment: float | None) -> tuple[float, str, bool] | None:
        """kill -9 so many seconds after the start, None: as soon as a save has begun that is not the first.

        Seconds when that was, what was found then, and whether a save had begun; None where the run had ended already.
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
        """The run in a process of its own; killed when the block is left, unless it has ended."""
        child = get_context("fork").Process(target=self._live)
        child.start()
        try:
            yield child
        finally:
            child.kill()
            child.join()

    def _live(self) -> NoReturn:
        """What the fork does; an error is told as a traceback."""
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
            return f"inside the save of step {_step(unfinished[0])}"
        if saved := self._saved():
            return f"step {_step(saved[-1])} saved"
        return "nothing saved yet" if (self.folder / manifest.NAME).exists() else "no run folder yet"


def _step(name: str) -> int:
    return int(name.rpartition("-")[2])

"""A run's folder under outputs/, and the only code that writes there.

    with open_run(RunLocation(), identity, command=sys.argv) as run:      # takes the folder's lock, or refuses
        saved = run.resume(warn)                                    # None for a new run
        run.record({"step": 10, "loss": 2.5}, seconds=1.2)
        run.save(10, Tensors(model, optimizer, state), counters)
        run.publish()
        run.finish("done")

An error that leaves the `with` is written into run.json; the same command then continues from the last checkpoint. A
start that is refused (exit 2, 3, 4, 5, 9, before anything was recorded) takes a new folder away again, and has changed
nothing in one that stood: until `begin` nothing is written there.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Literal, NamedTuple

from torch import Tensor

from mini_tf.run import loading, manifest, tensors
from mini_tf.run.checkpoint import COUNTERS, MODEL, OBJECTIVE, OPTIMIZER, STATE, Checkpoints, rank
from mini_tf.run.disk import Disk, make_folder, replace, storing, sweep
from mini_tf.run.events import Events
from mini_tf.run.finding import has_locks, seed_folder
from mini_tf.run.loading import Saved
from mini_tf.run.manifest import Manifest, RunState
from mini_tf.run.metrics import Lines, curve
from mini_tf.run.tensors import Spec
from mini_tf.system.errors import DataFault, Diverged, RecipeFault, Refusal, RunFault, StorageFault, Unavailable, UsageFault
from mini_tf.system.failures import refusal_of
from mini_tf.system.plain_file import read_record

MODEL_TEXTS = ("config.json", "tokenizer.json", "source_tokenizer.json")
"""What is needed to use model.safetensors."""
_REFUSED_STARTS = (UsageFault, RecipeFault, DataFault, RunFault, Unavailable)


class Tensors(NamedTuple):
    """What a checkpoint keeps besides counters, each by name. objective: of a network that is the objective's own."""

    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    state: Mapping[str, Tensor]
    objective: Mapping[str, Tensor] = MappingProxyType({})


class Run:
    """One run's folder, held by this process. `status` says how it was found; a finished one may only be read or extended.

    fingerprint: what decides the last bits here and now; every checkpoint keeps it (`opening.check_exact` puts it there).
    published_as: what makes the weights of model.safetensors of those of a checkpoint, where they are not the same.
    begun: whether this process has written run.json; of a folder that stood, nothing is changed before.
    """

    def __init__(self, folder: Path, record: Manifest, lock: int, status: Literal["new", "continued", "finished"], disk: Disk) -> None:
        self.folder, self.manifest, self.status, self.disk, self._lock = folder, record, status, disk, lock
        self.checkpoints = Checkpoints(folder / "checkpoints", record.run_id, disk)
        self.fingerprint: dict[str, Any] = {}
        self.published_as: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None
        self.begun, self._unlogged = False, list[str]()
        self.events: Events | None = None
        self._stood_before = False
        self._metrics, self._timing = Lines(folder / "metrics.jsonl", disk), Lines(folder / "timing.jsonl", disk)

    @property
    def name(self) -> str:
        return self.folder.name

    def begin(self, stood_before: bool = True) -> None:
        """Put run.json there, where interrupted work left nothing else: from now on the folder is this process's.

        stood_before: it was not made for it.
        """
        self._stood_before = stood_before
        with storing(f"preparing {self.folder}"):
            for folder in (self.folder, self.folder / "samples"):
                sweep(self.disk, folder)
            self.checkpoints.sweep()
        self.update(state="running", exit_code=None, error=None, pid=os.getpid(), host=os.uname().nodename)
        while self._unlogged:
            with suppress(OSError):
                self._write_log(self._unlogged.pop(0))

    def resume(
        self,
        warn: Callable[[str], None],
        expected: Mapping[str, Spec] | None = None,
        expected_optimizer: Mapping[str, Spec] | None = None,
        expected_objective: Mapping[str, Spec] | None = None,
    ) -> Saved | None:
        """Back to the newest sound checkpoint, metrics and all; None (and empty metrics) if never one was saved.

        model.safetensors is put right. RunFault where all checkpoints are damaged, or the tensors of the model, the
        optimizer or the objective are not the `expected` ones.
        """
        if self._lock >= 0 and not has_locks(self._lock):
            warn(f"{self.folder}: its file system has no locks; take care that no other process trains there")
        newest = self.checkpoints.newest(warn)
        saved = None if newest is None else loading.load(newest, expected, expected_optimizer, expected_objective)
        sizes = saved.counters if saved else {}
        with storing(f"continuing {self.folder}"):
            for lines in (self._metrics, self._timing):
                if not lines.cut(sizes.pop(lines.path.name, 0)):
                    warn(f"{lines.path.name} is shorter than it was at the checkpoint; earlier lines are lost")
        self._forget_after(saved.step if saved else 0)
        if saved:
            best = self.checkpoints.first_sound(self.checkpoints.by_score(), warn)
            if best is not None:  # a process may have been killed before it told of it
                self.update(best=self._best_with(best.step, best.score))
            self.publish(warn=warn)
        return saved

    def _forget_after(self, step: int) -> None:
        best, model = self.manifest.best, self.manifest.model
        best = best if best and best["step"] <= step else None
        self.update(step=step, best=best, model=model if model and model["step"] <= step else None)

    def record(self, report: Mapping[str, Any], seconds: float | None = None) -> None:
        """A line of metrics.jsonl: `step` and what was measured there, no clock; the seconds go into timing.jsonl."""
        with storing(f"recording step {report['step']}"):
            self._metrics.append(report)
            if seconds is not None:
                self._timing.append({"step": report["step"], "seconds": round(seconds, 3)})
            if self.events is not None:
                self.events.add(report)

    def save(self, step: int, kept: Tensors, counters: Mapping[str, Any], score: float | None = None) -> None:
        """A checkpoint after a finished step; `score` is the validation loss measured there. StorageFault when the disk is full."""
        score = score if score is not None and math.isfinite(score) else None
        with storing(f"saving step {step}", self.checkpoints.last_spoken()):
            sizes = {lines.path.name: lines.sync() for lines in (self._metrics, self._timing)}
        parts = {
            MODEL: tensors.pack(kept.model),
            OPTIMIZER: tensors.pack(kept.optimizer),
            STATE: tensors.pack(kept.state),
            COUNTERS: json.dumps({**counters, **sizes}, sort_keys=True, allow_nan=False).encode(),
        }
        if kept.objective:
            parts[OBJECTIVE] = tensors.pack(kept.objective)
        self.checkpoints.save(step, parts, score, self.fingerprint)
        self.update(step=step, best=self._best_with(step, score))

    def _best_with(self, step: int, score: float | None) -> dict[str, int | float] | None:
        """The best so far, where that may be this step."""
        best = self.manifest.best
        return {"step": step, "loss": score} if score is not None and (best is None or score < best["loss"]) else best

    def rotate(self, keep_last: int, keep_best: int) -> None:
        """Remove older checkpoints; the best by score are kept besides the newest."""
        self.checkpoints.rotate(keep_last, keep_best)

    def publish(self, which: int | Literal["last", "best"] = "best", warn: Callable[[str], None] = lambda line: None) -> None:
        """Make a checkpoint's weights model.safetensors; `best` never replaces a better one that stands there already.

        Where that one was lost or damaged, and its checkpoint is gone, `warn` is told, and what was measured of it is dropped.
        """
        before, hashes = self.manifest.model, self.checkpoints.hashes
        there = before if loading.is_published(self.folder, self.manifest, hashes) else None
        if there and which == "best" and not self.checkpoints.steps():
            return
        found = self.checkpoints.find(which)
        no_better = before is not None and which == "best" and rank(before["score"], before["step"]) <= found.rank
        if there and no_better:
            return
        chosen = self.checkpoints.choose(found.step)
        if before and no_better and before["step"] != chosen.step:
            warn(
                f"{MODEL}, made of step {before['step']}, is lost or damaged, and so is its checkpoint; "
                f"the next best takes its place: step {chosen.step}"
            )
            self.update(metrics={})
        content, sha256 = (chosen.folder / MODEL).read_bytes(), chosen.sha256[MODEL]
        if self.published_as is not None:
            content = tensors.pack(self.published_as(tensors.read(chosen.folder / MODEL)))
            sha256 = hashlib.sha256(content).hexdigest()
            self.update(publishing=sha256)  # no checkpoint has these bytes: killed before the next lines, they are known by this
        with storing(f"publishing step {chosen.step}", self.checkpoints.last_spoken()):
            replace(self.disk, self.folder / MODEL, content)
            hashes.note(self.folder / MODEL, sha256)
        self.update(model={"step": chosen.step, "score": chosen.score, "sha256": sha256}, publishing=None)

    def note_auto(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What `auto` resolved to: kept at the first start, and from then on given back as it was."""
        if not self.manifest.auto:
            self.update(auto=dict(found))
        return self.manifest.auto

    def extend(self, steps: int) -> None:
        """Ask for further steps of a finished run, before `begin`. Asked again for the same, an interrupted extension just continues."""
        extensions = self.manifest.extensions
        if self.status == "finished":
            self.manifest = self.manifest.model_copy(update={"extensions": [*extensions, (self.manifest.step, steps)]})
            self.status = "continued"
        elif not extensions:
            raise RunFault(
                f"{self.folder} is not finished", hint="without --extend the same command begins or continues it", where=[str(self.folder)]
            )
        elif steps != extensions[-1][1]:
            raise RunFault(f"{self.folder} is being extended by {str(extensions[-1][1])[:20]}, not {steps} steps", where=[str(self.folder)])

    def write(self, name: str, text: str) -> None:
        """One of the folder's own text files (recipe.yaml, resolved.yaml, MODEL_TEXTS), replaced as a whole."""
        with storing(f"writing {name}"):
            replace(self.disk, self.folder / name, text.encode())

    def sample(self, step: int, text: str) -> None:
        """A text the model wrote after a step: samples/step-00000500.txt."""
        with storing(f"writing the sample of step {step}", self.checkpoints.last_spoken()):
            make_folder(self.disk, self.folder / "samples")
            replace(self.disk, self._sample(step), text.encode(errors="backslashreplace"))

    def _sample(self, step: int) -> Path:
        return self.folder / "samples" / f"step-{step:08d}.txt"

    def has_sample(self, step: int) -> bool:
        return self._sample(step).exists()

    def last_sample(self) -> str:
        """The text the model wrote last, "" if it never wrote one."""
        texts = sorted((self.folder / "samples").glob("step-*.txt"))
        return read_record(texts[-1]).decode(errors="replace") if texts else ""

    def log(self, line: str) -> None:
        """A line of log.txt, with the time; those said before the run is begun are kept until it is."""
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {line}"
        if not self.begun:
            self._unlogged.append(line)
        else:
            self._write_log(line)

    def _write_log(self, line: str) -> None:
        self.disk.append(self.folder / "log.txt", (line + "\n").encode(errors="backslashreplace"))

    def crash(self, text: str) -> Path:
        """Keep what a bug left to say (a traceback): crash-20261121-231500-4711.txt, by time and process."""
        path = self.folder / f"crash-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.txt"
        self.disk.write(path, text.encode(errors="backslashreplace"))
        return path

    def curve(self, key: str) -> list[tuple[int, float]]:
        """(step, value) of a figure in every line of metrics.jsonl that has it."""
        return curve(self._metrics.path, key)

    def draw(self) -> None:
        """loss.png from metrics.jsonl; nothing if there is nothing to draw."""
        from mini_tf.drawing.loss_curve import loss_curve  # matplotlib is slow to import

        train, val = self.curve("loss"), self.curve("val.loss")
        if train or val:
            with storing("writing loss.png"):
                replace(self.disk, self.folder / "loss.png", loss_curve(train, val, self.name, self.manifest.loss_unit))

    def finish(self, state: RunState, exit_code: int = 0, error: str | None = None, metrics: Mapping[str, float] | None = None) -> None:
        """Write how the run ended; `metrics` are the last evaluation's, kept for --assert on a run that is already complete."""
        finite = {
            key: value if math.isfinite(value) else None for key, value in (metrics or self.manifest.metrics).items() if value is not None
        }
        self.update(state=state, exit_code=exit_code, error=error, metrics=finite)

    def close(self) -> None:
        """Let another process have the folder."""
        if self.events is not None:
            self.events.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            with suppress(OSError, StorageFault):  # the disk may be what failed
                begun = self._metrics.path.exists() or seed_folder(self.folder).exists()
                if isinstance(error, _REFUSED_STARTS) and self.status == "new" and not begun:
                    self._vanish()
                elif error is not None and self.begun and self.manifest.state == "running":
                    self.finish(*_ending(error))
        finally:
            self.close()

    def _vanish(self) -> None:
        """Leave no trace of a start that was refused; a folder that stood empty before stays empty."""
        for path in sorted(self.folder.iterdir()):
            self.disk.remove(path)
        if not self._stood_before:
            self.disk.remove(self.folder)

    def update(self, **fields: Any) -> None:
        """Change fields of run.json."""
        self.manifest, self.begun = self.manifest.model_copy(update=fields), True
        with storing(f"writing {manifest.NAME}"):
            manifest.write(self.folder, self.manifest, self.disk)


def _ending(error: BaseException) -> tuple[RunState, int, str]:
    text = f"{type(error).__name__}: {error}" if not isinstance(error, Refusal) else error.message
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 130
        return "stopped", code, "stopped"
    return "diverged" if isinstance(error, Diverged) else "failed", refusal_of(error).exit_code if isinstance(error, Exception) else 1, text

"""A run folder under outputs/, and the only code that writes there.

    with open_run(RunLocation(), identity, command=sys.argv) as run:  # locks the folder, or raises RunFault
        checkpoint = run.resume(warn)                                 # None for a new run
        run.record({"step": 10, "loss": 2.5}, seconds=1.2)
        run.save(10, CheckpointTensors(model, optimizer, state), counters)
        run.publish()
        run.finish("done")

An error inside the `with` block is written to run.json; the same command then continues from the last checkpoint. A
refused start (exit code 2, 3, 4, 5 or 9 before anything was recorded) removes a new folder and leaves an existing one
unchanged, since nothing is written there before `start`.
"""

import errno
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from torch import Tensor

from mini_tf.recipe.metrics import BestMetric
from mini_tf.run import loading, manifest, tensors
from mini_tf.run.checkpoint import COUNTERS, MODEL, OBJECTIVE, OPTIMIZER, STATE, Checkpoints, rank
from mini_tf.run.disk import (
    Content,
    Disk,
    break_hard_links,
    make_folder,
    remove_temporary,
    replace,
    sha256_of,
    storage_errors,
)
from mini_tf.run.finding import is_same, member_folders, supports_locks
from mini_tf.run.loading import LoadedCheckpoint
from mini_tf.run.manifest import Manifest, RunState
from mini_tf.run.metric_files import JsonLinesFile, TensorBoardWriter, curve
from mini_tf.run.tensors import CheckpointTensors, ExpectedTensors
from mini_tf.system.errors import DataFault, RecipeFault, RunFault, StorageFault, Unavailable, UsageFault
from mini_tf.system.safe_files import read_blocks, read_small_file

MODEL_TEXT_FILES = ("config.json", "tokenizer.json", "source_tokenizer.json")
"""The text files needed to load model.safetensors."""
_START_ERRORS = (UsageFault, RecipeFault, DataFault, RunFault, Unavailable)


class Run:
    """A run folder locked by this process. status: how it was found; a finished run can only be read or extended.

    fingerprint: what determines the exact bits of a result, stored in every checkpoint; set by `opening.check_exact`.
    best_metric: what the scores of checkpoints are, for run.json.
    export_weights: function from a checkpoint's weights to those of model.safetensors; None = they are equal.
    is_started: whether this process has written run.json; an existing folder is unchanged before.
    """

    def __init__(
        self, folder: Path, record: Manifest, lock: int, status: Literal["new", "continued", "finished"], disk: Disk
    ) -> None:
        self.folder, self.manifest, self.status, self.disk, self._lock = folder, record, status, disk, lock
        self.checkpoints = Checkpoints(folder / "checkpoints", record.run_id, disk)
        self.fingerprint: dict[str, Any] = {}
        self.best_metric = BestMetric()
        self.export_weights: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None
        self.is_started, self._pending_log = False, list[str]()
        self.tensorboard: TensorBoardWriter | None = None
        self._existed = False
        self._metrics = JsonLinesFile(folder / "metrics.jsonl", disk)
        self._timing = JsonLinesFile(folder / "timing.jsonl", disk)

    @property
    def name(self) -> str:
        return self.folder.name

    def start(self, existed: bool = True) -> None:
        """Remove temporary files and write run.json. existed: whether the folder existed before."""
        self._existed = existed
        with storage_errors(f"preparing {self.folder}"):
            for folder in (self.folder, self.folder / "samples"):
                remove_temporary(self.disk, folder)
            self.checkpoints.remove_temporary()
            break_hard_links(self.disk, self._metrics.path, self._timing.path, self.folder / "log.txt")
        self.update(state="running", exit_code=None, error=None, pid=os.getpid(), host=os.uname().nodename)
        with suppress(OSError):
            while self._pending_log:
                self._write_log(self._pending_log.pop(0))

    def resume(
        self, warn: Callable[[str], None], expected: ExpectedTensors = ExpectedTensors()
    ) -> LoadedCheckpoint | None:
        """Load the newest intact checkpoint and truncate the metrics to its step; None if there is none.

        Restores model.safetensors. RunFault if all checkpoints are damaged, or tensors are not the `expected` ones.
        """
        if self._lock >= 0 and not supports_locks(self._lock):
            unsafe = "the file system does not support locks; make sure that no other process trains in this folder"
            warn(f"{self.folder}: {unsafe}")
        newest = self.checkpoints.newest(warn)
        saved = None if newest is None else loading.load(newest, expected)
        sizes = saved.counters if saved else {}
        with storage_errors(f"continuing {self.folder}"):
            for file in (self._metrics, self._timing):
                if not file.truncate(sizes.pop(file.path.name, 0)):
                    warn(f"{file.path.name} is shorter than it was at the checkpoint; earlier lines are lost")
        if self.tensorboard is not None:
            self.tensorboard.write_all()
        step, best, model = saved.step if saved else 0, self.manifest.best, self.manifest.model
        best = best if best and best["step"] <= step else None
        self.update(step=step, best=best, model=model if model and model["step"] <= step else None)
        if saved:
            best_saved = self.checkpoints.first_intact(self.checkpoints.by_score(), warn)
            if best_saved is not None:  # a process may have been killed between saving and writing run.json
                self.update(best=self._best_with(best_saved.step, best_saved.score))
            self.publish(warn=warn)
        return saved

    def record(self, report: Mapping[str, Any], seconds: float | None = None) -> None:
        """Append `step` and its metrics to metrics.jsonl, and the seconds to timing.jsonl."""
        with storage_errors(f"recording step {report['step']}"):
            self._check_folder()
            self._metrics.append(report)
            if seconds is not None:
                self._timing.append({"step": report["step"], "seconds": round(seconds, 3)})
            if self.tensorboard is not None:
                self.tensorboard.add(report)

    def save(
        self, step: int, contents: CheckpointTensors, counters: Mapping[str, Any], score: float | None = None
    ) -> None:
        """Save a checkpoint after a finished step. score: lower is better. StorageFault if the disk is full."""
        score = score if score is not None and math.isfinite(score) else None
        with storage_errors(f"saving step {step}", self.checkpoints.describe_newest()):
            self._check_folder()
            sizes = {file.path.name: file.sync() for file in (self._metrics, self._timing)}
        named = zip((MODEL, OPTIMIZER, STATE, OBJECTIVE), contents, strict=True)
        parts = {name: tensors.Serialized(part) for name, part in named if part or name != OBJECTIVE}
        counted = json.dumps({**counters, **sizes}, sort_keys=True, allow_nan=False).encode()
        self.checkpoints.save(step, {**parts, COUNTERS: counted}, score, self.fingerprint, counters.get("words"))
        self.update(step=step, best=self._best_with(step, score))

    def _best_with(self, step: int, score: float | None) -> dict[str, int | float] | None:
        return self.manifest.best_with(step, score, self.best_metric.name, self.best_metric.sign)

    def rotate(self, keep_last: int, keep_best: int) -> None:
        self.checkpoints.rotate(keep_last, keep_best)

    def publish(
        self, which: int | Literal["last", "best"] = "best", warn: Callable[[str], None] = lambda line: None
    ) -> None:
        """Write a checkpoint's weights to model.safetensors.

        `best` never replaces a better published model, or that of a finished run (`eval.until` may have chosen it). If
        the published model and its checkpoint are missing or damaged, `warn` is called and the metrics of that model
        are dropped.
        """
        before, hashes = self.manifest.model, self.checkpoints.hashes
        published = before if loading.is_published(self.folder, self.manifest, hashes) else None
        if published and which == "best" and (self.manifest.state == "done" or not self.checkpoints.steps()):
            return
        if before is not None and which == "best" and self.manifest.state == "done":
            kept = [step for step in self.checkpoints.steps() if step == before["step"]]
            which = which if self.checkpoints.first_intact(kept) is None else before["step"]
        checkpoint = self.checkpoints.find(which)
        no_better = before is not None and which == "best" and rank(before["score"], before["step"]) <= checkpoint.rank
        if published and no_better:
            return
        chosen = self.checkpoints.find_verified(checkpoint.step)
        if before and no_better and before["step"] != chosen.step:
            lost = f"{MODEL} (step {before['step']}) and its checkpoint are missing or damaged"
            warn(f"{lost}; the next best checkpoint replaces it: step {chosen.step}")
            self.update(metrics={})
        content: Content = read_blocks(chosen.folder / MODEL)
        sha256 = chosen.sha256[MODEL]
        if self.export_weights is not None:
            content = tensors.Serialized(self.export_weights(tensors.read(chosen.folder / MODEL)))
            sha256 = sha256_of(content)
            self.update(publishing=sha256)  # identifies the file if the process is killed before the last line
        with storage_errors(f"publishing step {chosen.step}", self.checkpoints.describe_newest()):
            replace(self.disk, self.folder / MODEL, content)
            hashes.store(self.folder / MODEL, sha256)
        restored = before if before and before["step"] == chosen.step else {}  # with what was fitted for these weights
        self.update(model={**restored, "step": chosen.step, "score": chosen.score, "sha256": sha256}, publishing=None)

    def record_auto(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Store the resolved values of `auto` at the first start; return the stored ones."""
        if not self.manifest.auto:
            self.update(auto=dict(settings))
        return self.manifest.auto

    def extend(self, steps: int) -> None:
        """Add steps to a finished run, before `start`; the same number continues an interrupted extension."""
        extensions = self.manifest.extensions
        if self.status == "finished":
            self.manifest = self.manifest.model_copy(update={"extensions": [*extensions, (self.manifest.step, steps)]})
            self.status = "continued"
        elif not extensions:
            hint = "without --extend the same command starts or continues it"
            raise RunFault.about(self.folder, "is not finished", hint)
        elif steps != extensions[-1][1]:
            extended = f"is already being extended by {str(extensions[-1][1])[:20]} steps, not {steps}"
            raise RunFault.about(self.folder, extended)

    def write(self, name: str, text: str) -> None:
        """Write a text file of the folder (recipe.yaml, resolved.yaml, MODEL_TEXT_FILES) atomically."""
        with storage_errors(f"writing {name}"):
            replace(self.disk, self.folder / name, text.encode())

    def write_sample(self, step: int, text: str) -> None:
        """Write text generated after a step to samples/step-00000500.txt."""
        with storage_errors(f"writing the sample of step {step}", self.checkpoints.describe_newest()):
            self._check_folder()
            make_folder(self.disk, self.folder / "samples")
            replace(self.disk, self._sample_path(step), text.encode(errors="backslashreplace"))

    def _check_folder(self) -> None:
        """OSError if the folder was removed or replaced; it is not to come back with a part of the run."""
        if self._lock >= 0 and not is_same(self.folder, self._lock):
            raise OSError(errno.ENOENT, "the run folder was removed or replaced", str(self.folder))

    def _sample_path(self, step: int) -> Path:
        return self.folder / "samples" / f"step-{step:08d}.txt"

    def has_sample(self, step: int) -> bool:
        return self._sample_path(step).exists()

    def last_sample(self) -> str:
        """The newest sample, "" if there is none."""
        texts = sorted((self.folder / "samples").glob("step-*.txt"))
        return read_small_file(texts[-1]).decode(errors="replace") if texts else ""

    def log(self, line: str) -> None:
        """Append a line with the UTC time to log.txt; lines before `start` are buffered until then."""
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {line}"
        if not self.is_started:
            self._pending_log.append(line)
        else:
            self._write_log(line)

    def _write_log(self, line: str) -> None:
        self.disk.append(self.folder / "log.txt", (line + "\n").encode(errors="backslashreplace"))

    def crash(self, text: str) -> Path:
        """Write a traceback to crash-20261121-231500-4711.txt, named by UTC time and process id."""
        path = self.folder / f"crash-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.txt"
        self.disk.write(path, text.encode(errors="backslashreplace"))
        return path

    def curve(self, key: str) -> list[tuple[int, float]]:
        return curve(self._metrics.path, key)

    def plot_losses(self) -> None:
        """Write loss.svg from metrics.jsonl, if it has losses."""
        from mini_tf.drawing.run_losses import loss_curve  # only where one is drawn

        train, val = self.curve("loss"), self.curve("val.loss")
        if train or val:
            with storage_errors("writing loss.svg"):
                replace(self.disk, self.folder / "loss.svg", loss_curve(train, val, self.name, self.manifest.loss_unit))

    def finish(
        self, state: RunState, exit_code: int = 0, error: str | None = None, metrics: Mapping[str, float] | None = None
    ) -> None:
        """Write how the run ended. metrics: those of the last evaluation, for --assert on a finished run."""
        measured = {name: value for name, value in (metrics or self.manifest.metrics).items() if value is not None}
        finite = {name: value if math.isfinite(value) else None for name, value in measured.items()}
        self.update(state=state, exit_code=exit_code, error=error, metrics=finite)

    def close(self) -> None:
        if self.tensorboard is not None:
            self.tensorboard.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with suppress(OSError, StorageFault):  # the disk may be what failed
                self._check_folder()
                has_results = self._metrics.path.exists() or bool(member_folders(self.folder))
                if isinstance(error, _START_ERRORS) and self.status == "new" and not has_results:
                    self._remove_files()
                elif error is not None and self.is_started and self.manifest.state == "running":
                    self.finish(*manifest.outcome(error))
        finally:
            self.close()

    def _remove_files(self) -> None:
        """Remove the files of a refused start, and the folder unless it existed before."""
        for path in sorted(self.folder.iterdir()):
            self.disk.remove(path)
        if not self._existed:
            self.disk.remove(self.folder)

    def update(self, **fields: Any) -> None:
        self.manifest, self.is_started = self.manifest.model_copy(update=fields), True
        with storage_errors(f"writing {manifest.NAME}"):
            self._check_folder()
            manifest.write(self.folder, self.manifest, self.disk)

"""Checkpoints that a crash at any moment cannot damage: after it, the newest sound folder is the old one or the new one.

Saving: check free space, write every file into a temporary folder beside the others (fsync each), MANIFEST.json with
their sha256 last, rename, fsync the parent; only then remove what rotation drops, renamed first. There is no pointer to
the latest that could go stale: the newest folder whose manifest holds is the latest. Safetensors and JSON only.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mini_tf.errors import RunFault, StorageFault
from mini_tf.run.disk import TEMPORARY, Disk

FORMAT = 1
MODEL, OPTIMIZER, STATE, COUNTERS = "model.safetensors", "optimizer.safetensors", "state.safetensors", "counters.json"
FILES = (MODEL, OPTIMIZER, STATE, COUNTERS)
MANIFEST = "MANIFEST.json"
_TRASH = ".trash-"
_BAD = ".bad-"
_FOLDER = re.compile(r"step-(\d{8,})")


class Damaged(Exception):
    """A checkpoint that cannot be used; says why."""


@dataclass(frozen=True)
class Checkpoint:
    """A sound checkpoint: its folder, the step it was saved after, its validation loss if it had one, and its hashes."""

    folder: Path
    step: int
    score: float | None
    sha256: Mapping[str, str]


class Checkpoints:
    """The `checkpoints` folder of one run. `run_id` marks whose they are: another run's are refused."""

    def __init__(self, folder: Path, run_id: str, disk: Disk) -> None:
        self.folder, self.run_id, self.disk = folder, run_id, disk

    def steps(self) -> list[int]:
        """The steps that have a folder, newest first; RunFault where one, or the whole, is a link out of the run."""
        names = sorted(os.listdir(self.folder), reverse=True) if self.folder.is_dir() else []
        for path in [self.folder, *(self.folder / name for name in names if _FOLDER.fullmatch(name))]:
            if path.is_symlink():
                raise RunFault(f"{path} is a link; checkpoints are kept inside the run folder", where=[str(path)])
        return sorted((int(name.removeprefix("step-")) for name in names if _FOLDER.fullmatch(name)), reverse=True)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def save(self, step: int, parts: Mapping[str, bytes], score: float | None) -> Checkpoint:
        """Write a checkpoint of all FILES; a sound one of the same step is left as it is. StorageFault when the disk is full."""
        self.sweep()
        with suppress(FileNotFoundError, Damaged):
            return self.verify(step)
        if self.path(step).exists():
            self._quarantine(step)
        temporary = self.folder / f"{TEMPORARY}step-{step:08d}"
        try:
            self.disk.mkdir(self.folder)
            self._need_space(2 * sum(map(len, parts.values())))
            self._write(temporary, step, parts, score)
            self.disk.rename(temporary, self.path(step))
            self.disk.sync(self.folder)
        except OSError as error:
            with suppress(OSError):
                self.disk.remove(temporary)
            kept = next(iter(self.steps()), None)
            last = "there is no earlier checkpoint" if kept is None else f"the last checkpoint is step {kept}"
            raise StorageFault(f"saving step {step} failed: {error}; {last}", hint="free some space; the same command continues") from error
        return self.verify(step)

    def _need_space(self, needed: int) -> None:
        free = self.disk.free(self.folder)
        if free < needed:
            raise OSError(f"{needed >> 20} MiB are needed and {free >> 20} MiB are free")

    def _write(self, temporary: Path, step: int, parts: Mapping[str, bytes], score: float | None) -> None:
        self.disk.mkdir(temporary)
        for name in FILES:
            self.disk.write(temporary / name, parts[name])
        files = {name: {"sha256": hashlib.sha256(parts[name]).hexdigest(), "bytes": len(parts[name])} for name in FILES}
        manifest = {"format": FORMAT, "step": step, "run": self.run_id, "score": score, "files": files}
        self.disk.write(temporary / MANIFEST, json.dumps(manifest, indent=1).encode())
        self.disk.sync(temporary)

    def rotate(self, keep_last: int, keep_best: int) -> None:
        """Keep the newest and the best by score, at least the newest; what goes is renamed first, so no half stays behind."""
        steps = self.steps()
        sound = [c for c in map(self._manifest_or_none, steps) if c is not None]
        scored = sorted((c.score, c.step) for c in sound if c.score is not None)
        kept = {*steps[: max(1, keep_last)], *(step for _, step in scored[:keep_best])}
        for step in steps:
            if step not in kept:
                trash = self.folder / f"{_TRASH}step-{step:08d}"
                self.disk.rename(self.path(step), trash)
                self.disk.remove(trash)

    def sweep(self) -> None:
        """Remove what an interrupted save or rotation left."""
        for name in sorted(os.listdir(self.folder)) if self.folder.is_dir() else []:
            if name.startswith((TEMPORARY, _TRASH)) and not (self.folder / name).is_symlink():
                self.disk.remove(self.folder / name)

    def newest(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest sound checkpoint; damaged ones are set aside with a warning. None if never one was saved.

        RunFault when all are damaged: a run never starts over in silence.
        """
        for step in self.steps():
            try:
                return self.verify(step)
            except Damaged as damage:
                warn(f"{self.path(step).name} is damaged ({damage}); it is set aside")
                self._quarantine(step)
        if self.folder.is_dir() and any(name.startswith(_BAD) for name in os.listdir(self.folder)):
            raise RunFault(f"no usable checkpoint in {self.folder}", hint="--fresh starts over beside it", where=[str(self.folder)])
        return None

    def choose(self, which: int | str) -> Checkpoint:
        """The checkpoint of a step, `last` or `best` (lowest score, the earlier of equals), for reading only."""
        steps = self.steps()
        if not steps:
            raise RunFault(f"{self.folder.parent} has no checkpoint", where=[str(self.folder.parent)])
        if which == "best":
            scored = [(c.score, c.step) for c in map(self._manifest_or_none, steps) if c is not None and c.score is not None]
            which = min(scored)[1] if scored else "last"
        step = steps[0] if which == "last" else int(which)
        if step not in steps:
            kept = ", ".join(map(str, reversed(steps)))
            raise RunFault(f"{self.folder.parent} has no checkpoint of step {step}; it has {kept}", where=[str(self.folder)])
        try:
            return self.verify(step)
        except Damaged as damage:
            raise RunFault(f"{self.path(step)} is damaged: {damage}", where=[str(self.path(step))]) from damage

    def verify(self, step: int) -> Checkpoint:
        """The checkpoint, after every byte was compared with its manifest; Damaged says what is wrong."""
        if not self.path(step).is_dir():
            raise FileNotFoundError(self.path(step))
        checkpoint = self._read_manifest(step)
        for name, sha256 in checkpoint.sha256.items():
            try:
                with open(checkpoint.folder / name, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256") if hasattr(hashlib, "file_digest") else hashlib.sha256(file.read())
            except OSError as error:
                raise Damaged(f"{name}: {error.strerror}") from error
            if digest.hexdigest() != sha256:
                raise Damaged(f"{name}: checksum")
        return checkpoint

    def _manifest_or_none(self, step: int) -> Checkpoint | None:
        with suppress(Damaged):
            return self._read_manifest(step)
        return None

    def _read_manifest(self, step: int) -> Checkpoint:
        path = self.path(step) / MANIFEST
        try:
            with open(path, "rb") as file:
                manifest: dict[str, Any] = json.loads(file.read(1 << 16))
            written, run_id, named, score = manifest["format"], manifest["run"], manifest["step"], manifest["score"]
            sha256 = {str(name): str(entry["sha256"]) for name, entry in manifest["files"].items()}
        except OSError as error:
            raise Damaged(f"{MANIFEST}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Damaged(f"{MANIFEST}: not a manifest") from error
        if isinstance(written, int) and written > FORMAT:
            raise RunFault(f"{path} was written by format {written}; this minitf reads format {FORMAT}", where=[str(path)])
        if run_id != self.run_id:
            raise RunFault(f"{path} belongs to another run ({run_id}, not {self.run_id})", where=[str(path)])
        if set(sha256) != set(FILES) or named != step or not isinstance(score, (int, float, type(None))):
            raise Damaged(f"{MANIFEST}: names other files or another step")
        return Checkpoint(self.path(step), step, score, sha256)

    def _quarantine(self, step: int) -> None:
        number = 0
        while (self.folder / f"{_BAD}step-{step:08d}.{number}").exists():
            number += 1
        self.disk.rename(self.path(step), self.folder / f"{_BAD}step-{step:08d}.{number}")

"""Crash-safe checkpoints: after a crash at any moment the newest intact checkpoint is the previous or the new one.

Saving: check free space, write all files into a temporary folder (fsync each), MANIFEST.json with their sha256 last,
rename the folder, fsync the parent; only then rename and remove the checkpoints that rotation drops. The newest folder
that matches its manifest is the latest checkpoint; there is no pointer that could become stale. Formats: safetensors
and JSON.
"""

import errno
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mini_tf.run import manifest
from mini_tf.run.disk import (
    TEMPORARY,
    Disk,
    FileChunks,
    FileHashes,
    HashedChunks,
    atomic_replace,
    chunks,
    make_folder,
    remove_temporary,
    storage_errors,
)
from mini_tf.run.finding import member_folders
from mini_tf.system import strict_json
from mini_tf.system.errors import RunFault, StorageFault, UsageFault
from mini_tf.system.safe_files import read_small_file

FORMAT = 1
MODEL, OPTIMIZER, STATE, COUNTERS = "model.safetensors", "optimizer.safetensors", "state.safetensors", "counters.json"
FILES = (MODEL, OPTIMIZER, STATE, COUNTERS)
OBJECTIVE = "objective.safetensors"
"""Tensors of a network that belongs to the objective, if it has one; not part of the published model.safetensors."""
MANIFEST = "MANIFEST.json"
_TRASH = ".trash-"
_BAD = ".bad-"
_LARGEST_FILE = 1 << 62
Parts = Mapping[str, bytes | FileChunks]
"""The contents of the files of a checkpoint by name: FILES and, if the objective has its own network, OBJECTIVE."""
_FOLDER = re.compile("step-([0-9]{8}|[1-9][0-9]{8,11})")


class DamagedCheckpoint(Exception):
    """A checkpoint cannot be used; the message is the reason."""


@dataclass(frozen=True)
class Checkpoint:
    """The manifest of a checkpoint. step: number of finished steps. score: lower is better: the validation loss,
    or another metric of eval.best (`BestMetric`), if it was measured. words: of checkpoint.at_words; it is kept.

    sha256, sizes (bytes): by file name. fingerprint: software and hardware that determine the exact bits.
    """

    folder: Path
    step: int
    score: float | None
    sha256: Mapping[str, str]
    sizes: Mapping[str, int]
    fingerprint: Mapping[str, Any]
    words: int | None = None

    @property
    def rank(self) -> tuple[float, int]:
        return rank(self.score, self.step)


def rank(score: float | None, step: int) -> tuple[float, int]:
    """Sort key, best first: lower score, then earlier step; checkpoints without a score last, latest first."""
    return (math.inf, -step) if score is None else (score, step)


class Checkpoints:
    """The `checkpoints` folder of one run. Checkpoints with another `run_id` are refused.

    hashes: cached SHA-256 of the run's files that this process has read or written.
    """

    def __init__(self, folder: Path, run_id: str, disk: Disk) -> None:
        self.folder, self.run_id, self.disk, self.hashes = folder, run_id, disk, FileHashes()

    @classmethod
    def of(cls, run: Path) -> "Checkpoints":
        """The checkpoints of the run in a folder; RunFault if it is not a run folder."""
        return cls(run / "checkpoints", manifest.read(run).run_id, Disk())

    def steps(self) -> list[int]:
        """The steps that have a folder, newest first; RunFault if one of these folders, or their parent, is a link."""
        folders = [match for match in map(_FOLDER.fullmatch, self._names()) if match]
        for path in [self.folder, *(self.folder / match[0] for match in folders)]:
            if path.is_symlink():
                raise RunFault.about(path, "is a link; checkpoints must be inside the run folder")
        return sorted((int(match[1]) for match in folders), reverse=True)

    def _names(self) -> list[str]:
        return os.listdir(self.folder) if self.folder.is_dir() else []

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def save(
        self,
        step: int,
        parts: Parts,
        score: float | None,
        fingerprint: Mapping[str, Any] | None = None,
        words: int | None = None,
    ) -> Checkpoint:
        """Write a checkpoint; StorageFault if the disk is full. An intact one of the same step is not written again."""
        with storage_errors(f"saving step {step}", self.describe_newest()):
            self.remove_temporary()
            with suppress(FileNotFoundError, DamagedCheckpoint):
                return self.verify(step)
            if self.path(step).exists():
                self._set_aside(step)
            make_folder(self.disk, self.folder)
            needed, free = 2 * sum(map(len, parts.values())), self.disk.free(self.folder)
            if free < needed:
                raise OSError(errno.ENOSPC, f"{needed >> 20} MiB are needed and {free >> 20} MiB are free")
            with atomic_replace(self.disk, self.path(step)) as temporary:
                self._write(temporary, step, parts, {"score": score, "words": words}, fingerprint or {})
            saved = self._read_manifest(step)
            for name, sha256 in saved.sha256.items():
                self.hashes.store(saved.folder / name, sha256)
        return saved

    def describe_newest(self) -> str:
        """A phrase for error messages: the step of the newest checkpoint."""
        steps = self.steps()
        return f"the last checkpoint is step {steps[0]}" if steps else "there is no earlier checkpoint"

    def _write(
        self, temporary: Path, step: int, parts: Parts, facts: Mapping[str, Any], fingerprint: Mapping[str, Any]
    ) -> None:
        self.disk.mkdir(temporary)
        files = {}
        for name in [*FILES, *(name for name in (OBJECTIVE,) if name in parts)]:
            hashed = HashedChunks(chunks(parts[name]))
            self.disk.write(temporary / name, hashed)
            files[name] = {"sha256": hashed.sha256, "bytes": len(parts[name])}
        content = {"format": FORMAT, "step": step, "run": self.run_id, **facts, "files": files}
        content["fingerprint"] = dict(fingerprint)
        self.disk.write(temporary / MANIFEST, json.dumps(content, indent=1).encode())
        self.disk.sync(temporary)

    def superfluous(self, keep_last: int, keep_best: int) -> list[int]:
        """The steps that `rotate` removes; there are some only where a run was killed before it."""
        valid = self.list_valid()
        if valid and OBJECTIVE in valid[0].sha256:
            keep_best = max(1, keep_best)
        steps = [checkpoint.step for checkpoint in valid]
        kept = {*steps[: max(1, keep_last)], *self.by_score()[:keep_best]}
        kept |= {checkpoint.step for checkpoint in valid if checkpoint.words is not None}
        return [step for step in steps if step not in kept]

    def rotate(self, keep_last: int, keep_best: int) -> None:
        """Keep the `keep_last` newest (at least 1) and `keep_best` best checkpoints by score, and remove the others.

        The newest is read back and verified first. Folders are renamed before removal, so no partial checkpoint
        remains. Folders without a valid manifest of this run are kept. If the objective has its own network the best
        checkpoint is always kept, since only it holds the network that belongs to model.safetensors.
        """
        steps, removed = [checkpoint.step for checkpoint in self.list_valid()], self.superfluous(keep_last, keep_best)
        if not removed:
            return
        with storage_errors("removing older checkpoints", "no checkpoint was lost"):
            self.hashes.drop(self.path(steps[0]))  # verify the file on disk, not the hash stored when it was written
            try:
                self.verify(steps[0])
            except DamagedCheckpoint as damage:
                fault = f"{self.path(steps[0])} cannot be read back: {damage}"
                raise StorageFault(fault, hint="older checkpoints were kept") from damage
            trash = {step: self.folder / f"{_TRASH}step-{step:08d}" for step in removed}
            for step in removed:
                self.disk.rename(self.path(step), trash[step])
            self.disk.sync(self.folder)
            for step in removed:
                self.disk.remove(trash[step])
            self.disk.sync(self.folder)

    def remove_temporary(self) -> None:
        """Remove what an interrupted save or rotation left."""
        remove_temporary(self.disk, self.folder, (TEMPORARY, _TRASH))

    def newest(self, warn: Callable[[str], None] | None = None) -> Checkpoint | None:
        """The newest intact checkpoint, None if none was ever saved. With `warn`, damaged ones are renamed.

        RunFault if all are damaged: a run never silently starts over.
        """
        steps = self.steps()
        checkpoint = self.first_intact(steps, warn)
        if checkpoint is None and (steps or any(name.startswith(_BAD) for name in self._names())):
            why = ""
            if steps and warn is None:
                why = f"; {self.path(steps[0]).name} is damaged ({self._verified(steps[0])[1]})"
            hint = "--fresh starts a new run in a new folder beside it"
            raise RunFault(f"no usable checkpoint in {self.folder}{why}", hint=hint, where=[str(self.folder)])
        return checkpoint

    def first_intact(self, steps: Iterable[int], warn: Callable[[str], None] | None = None) -> Checkpoint | None:
        """The first intact checkpoint of these steps. With `warn`, damaged ones before it are renamed."""
        for step in steps:
            checkpoint, damage = self._verified(step)
            if checkpoint is not None:
                return checkpoint
            if warn is not None:
                action = "it is set aside"
                try:
                    self._set_aside(step)
                except OSError as error:
                    action = f"it cannot be set aside ({error.strerror}) and is skipped"
                warn(f"{self.path(step).name} is damaged ({damage}); {action}")
        return None

    def by_score(self) -> list[int]:
        """The steps that have a score, best first, then by step."""
        scored = [checkpoint for checkpoint in self.list_valid() if checkpoint.score is not None]
        return [checkpoint.step for checkpoint in sorted(scored, key=lambda checkpoint: checkpoint.rank)]

    def find(self, which: int | str) -> Checkpoint:
        """The checkpoint of a step, `last` or `best` (lowest score); reads only its manifest. RunFault if missing,
        UsageFault if `which` is none of these.
        """
        if which not in ("last", "best") and not re.fullmatch("[0-9]{1,12}", str(which)):
            raise UsageFault(f"no such checkpoint: {str(which)[:40]!r}; use a step number, `last` or `best`")
        steps, run = self.steps(), self.folder.parent
        if not steps:
            members = member_folders(run)
            hint = f"use one of its runs: {members[0]}, ..." if members else ""
            raise RunFault.about(run, "has no checkpoint", hint)
        if which == "best":
            which = next(iter(self.by_score()), "last")
        step = steps[0] if which == "last" else int(which)
        if step not in steps:
            kept = ", ".join(map(str, reversed(steps)))
            raise RunFault.about(run, f"has no checkpoint of step {step}; it has {kept}")
        return self._read_or_raise(self._read_manifest, step)

    def find_verified(self, which: int | str) -> Checkpoint:
        """`find`, with all files verified; RunFault if one is damaged."""
        return self._read_or_raise(self.verify, self.find(which).step)

    def _read_or_raise(self, read: Callable[[int], Checkpoint], step: int) -> Checkpoint:
        try:
            return read(step)
        except DamagedCheckpoint as damage:
            raise RunFault.about(self.path(step), f"is damaged: {damage}") from damage

    def verify(self, step: int) -> Checkpoint:
        """The checkpoint, after all files were compared with its manifest; DamagedCheckpoint if one differs."""
        if not self.path(step).exists():
            raise FileNotFoundError(self.path(step))
        checkpoint = self._read_manifest(step)
        for name, sha256 in checkpoint.sha256.items():
            try:
                actual = self.hashes.sha256(checkpoint.folder / name, checkpoint.sizes[name])
            except (OSError, ValueError) as error:
                raise DamagedCheckpoint(f"{name}: {getattr(error, 'strerror', error)}") from error
            if actual != sha256:
                raise DamagedCheckpoint(f"{name}: wrong checksum")
        return checkpoint

    def _verified(self, step: int) -> tuple[Checkpoint | None, str]:
        """The checkpoint, or its damage."""
        try:
            return self.verify(step), ""
        except DamagedCheckpoint as damage:
            return None, str(damage)

    def list_valid(self) -> list[Checkpoint]:
        """The checkpoints with a valid manifest of this run, newest first; their other files are not verified."""
        valid = []
        for step in self.steps():
            with suppress(DamagedCheckpoint, RunFault):
                valid.append(self._read_manifest(step))
        return valid

    def _read_manifest(self, step: int) -> Checkpoint:
        path = self.path(step) / MANIFEST
        try:
            content: dict[str, Any] = strict_json.read(read_small_file(path))
            written, run_id, named, score = content["format"], content["run"], content["step"], content["score"]
            sha256 = {str(name): str(entry["sha256"]) for name, entry in content["files"].items()}
            sizes = {str(name): int(entry["bytes"]) for name, entry in content["files"].items()}
            fingerprint, words = dict(content["fingerprint"]), content.get("words")
        except OSError as error:
            raise DamagedCheckpoint(f"{MANIFEST}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise DamagedCheckpoint(f"{MANIFEST}: not a manifest") from error
        manifest.check_format(path, written, FORMAT)
        if run_id != self.run_id:
            raise RunFault.about(path, f"belongs to another run ({str(run_id)[:40]}, not {self.run_id})")
        # A score is neither NaN nor too large.
        is_score = score is None or (type(score) in (int, float) and abs(score) < 1e300)
        as_written = set(sha256) - {OBJECTIVE} == set(FILES) and named == step and is_score
        if not as_written or max(sizes.values()) > _LARGEST_FILE:
            raise DamagedCheckpoint(f"{MANIFEST}: lists other files or another step")
        if words is not None and type(words) is not int:
            raise DamagedCheckpoint(f"{MANIFEST}: words must be a number")
        return Checkpoint(self.path(step), step, score, sha256, sizes, fingerprint, words)

    def _set_aside(self, step: int) -> None:
        number = 0
        while (self.folder / f"{_BAD}step-{step:08d}.{number}").exists():
            number += 1
        self.disk.rename(self.path(step), self.folder / f"{_BAD}step-{step:08d}.{number}")

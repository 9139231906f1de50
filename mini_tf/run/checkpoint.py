"""Checkpoints that a crash at any moment cannot damage: after it, the newest sound folder is the old one or the new one.

Saving: check free space, write every file into a temporary folder beside the others (fsync each), MANIFEST.json with
their sha256 last, rename, fsync the parent; only then remove what rotation drops, renamed first. There is no pointer to
the latest that could go stale: the newest folder whose manifest holds is the latest. Safetensors and JSON only.
"""

import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mini_tf.run import manifest
from mini_tf.run.disk import TEMPORARY, Disk, make_folder, placing, storing, sweep
from mini_tf.run.finding import seed_folder
from mini_tf.run.hashes import Hashes
from mini_tf.system.errors import RunFault, StorageFault
from mini_tf.system.plain_file import read_record

FORMAT = 1
MODEL, OPTIMIZER, STATE, COUNTERS = "model.safetensors", "optimizer.safetensors", "state.safetensors", "counters.json"
FILES = (MODEL, OPTIMIZER, STATE, COUNTERS)
OBJECTIVE = "objective.safetensors"
"""One more file, where the objective has a network of its own: model.safetensors does without it, so only checkpoints hold it."""
MANIFEST = "MANIFEST.json"
_TRASH = ".trash-"
_BAD = ".bad-"
_LARGEST_FILE = 1 << 62
_FOLDER = re.compile("step-([0-9]{8}|[1-9][0-9]{8,11})")


class Damaged(Exception):
    """A checkpoint that cannot be used; says why."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint by its manifest: its folder, the step it was saved after, its validation loss if it had one.

    sha256, sizes: of its files, in bytes. fingerprint: what decides the last bits, as it was then; empty in older ones.
    """

    folder: Path
    step: int
    score: float | None
    sha256: Mapping[str, str]
    sizes: Mapping[str, int]
    fingerprint: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rank(self) -> tuple[float, int]:
        return rank(self.score, self.step)


def rank(score: float | None, step: int) -> tuple[float, int]:
    """Sorts the better first: the lower score, of equals the earlier; without scores the later step."""
    return (math.inf, -step) if score is None else (score, step)


class Checkpoints:
    """The `checkpoints` folder of one run. `run_id` marks whose they are: another run's are refused.

    hashes: of the run's files, those that this process has read or written already.
    """

    def __init__(self, folder: Path, run_id: str, disk: Disk) -> None:
        self.folder, self.run_id, self.disk, self.hashes = folder, run_id, disk, Hashes()

    @classmethod
    def of(cls, run: Path) -> "Checkpoints":
        """Those of the run in a folder; RunFault where it is none."""
        return cls(run / "checkpoints", manifest.read(run).run_id, Disk())

    def steps(self) -> list[int]:
        """The steps that have a folder, newest first; RunFault where one, or the whole, is a link out of the run."""
        found = [one for one in map(_FOLDER.fullmatch, self._names()) if one]
        for path in [self.folder, *(self.folder / one[0] for one in found)]:
            if path.is_symlink():
                raise RunFault(f"{path} is a link; checkpoints are kept inside the run folder", where=[str(path)])
        return sorted((int(one[1]) for one in found), reverse=True)

    def _names(self) -> list[str]:
        return os.listdir(self.folder) if self.folder.is_dir() else []

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def save(self, step: int, parts: Mapping[str, bytes], score: float | None, fingerprint: Mapping[str, Any] | None = None) -> Checkpoint:
        """Write a checkpoint of all FILES, and of OBJECTIVE where `parts` has it; a sound one of the same step is left as it is.

        StorageFault when the disk is full.
        """
        with storing(f"saving step {step}", self.last_spoken()):
            self.sweep()
            with suppress(FileNotFoundError, Damaged):
                return self.verify(step)
            if self.path(step).exists():
                self._set_aside(step)
            make_folder(self.disk, self.folder)
            self._need_space(2 * sum(map(len, parts.values())))
            with placing(self.disk, self.path(step)) as temporary:
                self._write(temporary, step, parts, score, fingerprint or {})
            saved = self._read_manifest(step)
            for name, sha256 in saved.sha256.items():
                self.hashes.note(saved.folder / name, sha256)
        return saved

    def last_spoken(self) -> str:
        """The newest, in words."""
        steps = self.steps()
        return f"the last checkpoint is step {steps[0]}" if steps else "there is no earlier checkpoint"

    def _need_space(self, needed: int) -> None:
        free = self.disk.free(self.folder)
        if free < needed:
            raise OSError(errno.ENOSPC, f"{needed >> 20} MiB are needed and {free >> 20} MiB are free")

    def _write(self, temporary: Path, step: int, parts: Mapping[str, bytes], score: float | None, fingerprint: Mapping[str, Any]) -> None:
        self.disk.mkdir(temporary)
        names = [*FILES, *(name for name in (OBJECTIVE,) if name in parts)]
        for name in names:
            self.disk.write(temporary / name, parts[name])
        files = {name: {"sha256": hashlib.sha256(parts[name]).hexdigest(), "bytes": len(parts[name])} for name in names}
        content = {"format": FORMAT, "step": step, "run": self.run_id, "score": score, "files": files, "fingerprint": dict(fingerprint)}
        self.disk.write(temporary / MANIFEST, json.dumps(content, indent=1).encode())
        self.disk.sync(temporary)

    def rotate(self, keep_last: int, keep_best: int) -> None:
        """Keep the newest and the best by score, at least the newest, which is read back before another goes.

        What goes is renamed first, so no half stays behind. What has no manifest of this run is left alone. Where the objective has
        a network of its own, the best one stays in any case: it has the network that belongs to model.safetensors.
        """
        found = self.own()
        own = [one.step for one in found]
        if found and OBJECTIVE in found[0].sha256:
            keep_best = max(1, keep_best)
        kept = {*own[: max(1, keep_last)], *self.by_score()[:keep_best]}
        going = [step for step in own if step not in kept]
        if not going:
            return
        with storing("removing older checkpoints", "none was lost"):
            self.hashes.forget(self.path(own[0]))  # that it was written does not say that it can be read
            try:
                self.verify(own[0])
            except Damaged as damage:
                raise StorageFault(f"{self.path(own[0])} cannot be read back: {damage}", hint="older ones were kept") from damage
            trash = {step: self.folder / f"{_TRASH}step-{step:08d}" for step in going}
            for step in going:
                self.disk.rename(self.path(step), trash[step])
            self.disk.sync(self.folder)
            for step in going:
                self.disk.remove(trash[step])
            self.disk.sync(self.folder)

    def sweep(self) -> None:
        """Remove what an interrupted save or rotation left."""
        sweep(self.disk, self.folder, (TEMPORARY, _TRASH))

    def newest(self, warn: Callable[[str], None] | None = None) -> Checkpoint | None:
        """The newest sound checkpoint; with `warn`, damaged ones are set aside with a warning. None if never one was saved.

        RunFault when all are damaged: a run never starts over in silence.
        """
        steps = self.steps()
        found = self.first_sound(steps, warn)
        if found is None and (steps or any(name.startswith(_BAD) for name in self._names())):
            why = "".join(f"; {self.path(step).name} is damaged ({self._damage(step)})" for step in steps[:1] if warn is None)
            raise RunFault(f"no usable checkpoint in {self.folder}{why}", hint="--fresh starts over beside it", where=[str(self.folder)])
        return found

    def first_sound(self, steps: Iterable[int], warn: Callable[[str], None] | None = None) -> Checkpoint | None:
        """The first of these that is sound; with `warn`, those before it are set aside with a warning, where the disk lets them."""
        for step in steps:
            try:
                return self.verify(step)
            except Damaged as damage:
                if warn is None:
                    continue
                done = "it is set aside"
                try:
                    self._set_aside(step)
                except OSError as error:
                    done = f"it cannot be set aside ({error.strerror}) and is passed over"
                warn(f"{self.path(step).name} is damaged ({damage}); {done}")
        return None

    def by_score(self) -> list[int]:
        """The steps that have a validation loss, the best first; of equals the earlier."""
        return [one.step for one in sorted(self.own(), key=lambda one: one.rank) if one.score is not None]

    def find(self, which: int | str) -> Checkpoint:
        """The checkpoint of a step, `last` or `best` (lowest score), by its manifest alone; RunFault where there is none."""
        steps = self.steps()
        if not steps:
            one = seed_folder(self.folder.parent)
            hint = f"each of its seeds has checkpoints of its own: {one}, ..." if one.is_dir() else ""
            raise RunFault(f"{self.folder.parent} has no checkpoint", hint=hint, where=[str(self.folder.parent)])
        if which == "best":
            which = next(iter(self.by_score()), "last")
        step = steps[0] if which == "last" else int(which)
        if step not in steps:
            kept = ", ".join(map(str, reversed(steps)))
            raise RunFault(f"{self.folder.parent} has no checkpoint of step {step}; it has {kept}", where=[str(self.folder)])
        return self._or_refused(self._read_manifest, step)

    def choose(self, which: int | str) -> Checkpoint:
        """As `find`, for reading: RunFault unless every byte is as it was written."""
        return self._or_refused(self.verify, self.find(which).step)

    def _or_refused(self, read: Callable[[int], Checkpoint], step: int) -> Checkpoint:
        try:
            return read(step)
        except Damaged as damage:
            raise RunFault(f"{self.path(step)} is damaged: {damage}", where=[str(self.path(step))]) from damage

    def verify(self, step: int) -> Checkpoint:
        """The checkpoint, after every byte was compared with its manifest; Damaged says what is wrong."""
        if not self.path(step).exists():
            raise FileNotFoundError(self.path(step))
        checkpoint = self._read_manifest(step)
        for name, sha256 in checkpoint.sha256.items():
            try:
                found = self.hashes.of(checkpoint.folder / name, checkpoint.sizes[name])
            except OSError as error:
                raise Damaged(f"{name}: {error.strerror}") from error
            except ValueError as error:
                raise Damaged(f"{name}: {error}") from error
            if found != sha256:
                raise Damaged(f"{name}: checksum")
        return checkpoint

    def _damage(self, step: int) -> str:
        try:
            self.verify(step)
        except Damaged as damage:
            return str(damage)
        return ""

    def own(self) -> list[Checkpoint]:
        """Those whose manifest can be read and is this run's, newest first; their other files were not looked at."""
        own = []
        for step in self.steps():
            with suppress(Damaged, RunFault):
                own.append(self._read_manifest(step))
        return own

    def _read_manifest(self, step: int) -> Checkpoint:
        path = self.path(step) / MANIFEST
        try:
            content: dict[str, Any] = json.loads(read_record(path))
            written, run_id, named, score = content["format"], content["run"], content["step"], content["score"]
            sha256 = {str(name): str(entry["sha256"]) for name, entry in content["files"].items()}
            sizes = {str(name): int(entry["bytes"]) for name, entry in content["files"].items()}
            fingerprint = dict(content.get("fingerprint", {}))
        except OSError as error:
            raise Damaged(f"{MANIFEST}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise Damaged(f"{MANIFEST}: not a manifest") from error
        if isinstance(written, int) and written > FORMAT:
            raise RunFault(f"{path} was written by format {str(written)[:20]}; this minitf reads format {FORMAT}", where=[str(path)])
        if run_id != self.run_id:
            raise RunFault(f"{path} belongs to another run ({str(run_id)[:40]}, not {self.run_id})", where=[str(path)])
        if set(sha256) - {OBJECTIVE} != set(FILES) or named != step or not _is_score(score) or max(sizes.values()) > _LARGEST_FILE:
            raise Damaged(f"{MANIFEST}: names other files or another step")
        return Checkpoint(self.path(step), step, score, sha256, sizes, fingerprint)

    def _set_aside(self, step: int) -> None:
        number = 0
        while (self.folder / f"{_BAD}step-{step:08d}.{number}").exists():
            number += 1
        self.disk.rename(self.path(step), self.folder / f"{_BAD}step-{step:08d}.{number}")


def _is_score(score: Any) -> bool:
    return score is None or (isinstance(score, (int, float)) and abs(score) < 1e300)  # neither NaN nor too large

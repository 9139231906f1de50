"""Checkpoints: damage is seen, told and never built upon; rotation. Crashes: tests/faults/test_faults_checkpoint.py."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import flip

from mini_tf.run import tensors
from mini_tf.run.checkpoint import COUNTERS, FILES, MANIFEST, MODEL, OBJECTIVE, Checkpoint, Checkpoints
from mini_tf.run.disk import Disk, FileHashes
from mini_tf.system.errors import RunFault, StorageFault


def parts(step: int) -> dict[str, bytes]:
    return {name: f"{name} of step {step}".encode() * 50 for name in FILES}


def saved(folder: Path, *steps: int, disk: Disk | None = None) -> Checkpoints:
    checkpoints = Checkpoints(folder / "checkpoints", "run-1", disk or Disk())
    for step in steps:
        checkpoints.save(step, parts(step), score=None)
    return checkpoints


def newest(folder: Path) -> tuple[Checkpoint, list[str]]:
    warnings: list[str] = []
    found = Checkpoints(folder / "checkpoints", "run-1", Disk()).newest(warnings.append)
    assert found is not None
    return found, warnings


def test_a_save_asks_for_room_for_itself_and_for_as_much_again(tmp_path: Path) -> None:
    """The model that is published of it, and whatever else is written beside it."""
    needed = 2 * sum(len(data) for data in parts(10).values())

    class Measured(Disk):
        def __init__(self, bytes_free: int) -> None:
            self.bytes_free = bytes_free

        def free(self, folder: Path) -> int:
            return self.bytes_free

    with pytest.raises(StorageFault, match=r"MiB are needed and 0 MiB are free; there is no earlier checkpoint"):
        saved(tmp_path, 10, disk=Measured(needed - 1))
    assert os.listdir(tmp_path / "checkpoints") == []
    assert saved(tmp_path, 10, disk=Measured(needed)).verify(10).step == 10


def changed(checkpoint: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((checkpoint / MANIFEST).read_text())
    change(manifest)
    (checkpoint / MANIFEST).write_text(json.dumps(manifest))


def point_out_of_the_folder(manifest: dict[str, Any]) -> None:
    manifest["files"]["../../etc/passwd"] = manifest["files"].pop(MODEL)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda checkpoint: os.truncate(checkpoint / MODEL, 10),
    "zero-filled": lambda checkpoint: (checkpoint / MODEL).write_bytes(bytes(len(parts(20)[MODEL]))),
    "bit-flipped": lambda checkpoint: flip(checkpoint / COUNTERS),
    "file-missing": lambda checkpoint: (checkpoint / MODEL).unlink(),
    "manifest-no-json": lambda checkpoint: (checkpoint / MANIFEST).write_text("{not json"),
    "manifest-nested": lambda checkpoint: (checkpoint / MANIFEST).write_text("[" * 100_000),
    "path-out": lambda checkpoint: changed(checkpoint, point_out_of_the_folder),
    "earlier-step": lambda checkpoint: changed(checkpoint, lambda manifest: manifest.update(step=10)),
    "later-step": lambda checkpoint: changed(checkpoint, lambda manifest: manifest.update(step=30)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=[f"C3-{name}" for name in DAMAGES])
def test_a_damaged_checkpoint_is_set_aside_with_a_warning_and_the_one_before_is_used(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    checkpoints = saved(tmp_path, 10, 20)
    damage(checkpoints.path(20))
    found, [warning] = newest(tmp_path)
    assert found.step == 10
    assert warning.startswith("step-00000020 is damaged (")
    assert sorted(os.listdir(checkpoints.folder)) == [".bad-step-00000020.0", "step-00000010"]


def test_where_all_checkpoints_are_damaged_nothing_starts_over_in_silence(tmp_path: Path) -> None:
    """At the second start, too, when all of them are set aside."""
    checkpoints = saved(tmp_path, 10, 20)
    for step in (10, 20):
        flip(checkpoints.path(step) / MODEL)
    for _ in range(2):
        with pytest.raises(RunFault, match="no usable checkpoint in"):
            checkpoints.newest(lambda line: None)


def test_where_never_a_checkpoint_was_saved_there_is_none(tmp_path: Path) -> None:
    assert saved(tmp_path).newest(lambda line: None) is None


def test_rotation_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path)
    for step, score in [(10, 3.0), (20, 1.0), (30, 2.0), (40, None), (50, 1.0)]:
        checkpoints.save(step, parts(step), score)
    assert checkpoints.find_verified("best").step == 20
    checkpoints.rotate(keep_last=2, keep_best=1)
    assert checkpoints.steps() == [50, 40, 20]
    checkpoints.rotate(keep_last=0, keep_best=0)
    assert checkpoints.steps() == [50]


def test_rotation_keeps_as_many_of_the_best_as_it_is_asked_and_of_equals_the_earlier(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path)
    for step, score in [(10, 1.0), (20, 3.0), (30, 1.0), (40, 2.0), (50, 9.0), (60, None)]:
        checkpoints.save(step, parts(step), score)
    assert checkpoints.by_score() == [10, 30, 40, 20, 50]
    checkpoints.rotate(keep_last=2, keep_best=3)
    assert checkpoints.steps() == [60, 50, 40, 30, 10]
    checkpoints.rotate(keep_last=1, keep_best=1)
    assert checkpoints.steps() == [60, 10]


def test_rotation_keeps_the_best_where_it_alone_has_the_network_of_the_objective(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path)
    for step, score in [(10, 1.0), (20, 3.0), (30, 2.0)]:
        checkpoints.save(step, {**parts(step), OBJECTIVE: b"network"}, score)
    checkpoints.rotate(keep_last=1, keep_best=0)
    assert checkpoints.steps() == [30, 10]


def test_rotation_makes_the_new_names_durable_before_it_removes_anything(tmp_path: Path) -> None:
    """Else a crash could leave a half-removed checkpoint under its own name."""
    operations: list[str] = []

    class Traced(Disk):
        def rename(self, old: Path, new: Path) -> None:
            operations.append("rename")
            super().rename(old, new)

        def sync(self, folder: Path) -> None:
            operations.append("sync")
            super().sync(folder)

        def remove(self, path: Path) -> None:
            operations.append("remove")
            super().remove(path)

    saved(tmp_path, 10, 20, 30)
    Checkpoints(tmp_path / "checkpoints", "run-1", Traced()).rotate(1, 0)
    assert operations == ["rename", "rename", "sync", "remove", "remove", "sync"]


def test_a_file_that_changed_within_one_tick_of_its_time_is_hashed_again(tmp_path: Path) -> None:
    """As many bytes, and the same time of change by `os.utime`."""
    hashes, file = FileHashes(), tmp_path / "file"
    file.write_bytes(b"one")
    before, status = hashes.sha256(file), file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert hashes.sha256(file) == hashlib.sha256(b"two").hexdigest() != before
    file.write_bytes(b"3")  # fewer bytes
    assert hashes.sha256(file) == hashlib.sha256(b"3").hexdigest()


def test_saving_a_step_again_changes_nothing(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 10)
    before = (checkpoints.path(10) / MODEL).stat().st_ino
    checkpoints.save(10, parts(11), score=None)
    assert (checkpoints.path(10) / MODEL).stat().st_ino == before


def test_saving_a_step_whose_checkpoint_is_damaged_sets_that_aside(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 10, 20)
    flip(checkpoints.path(20) / COUNTERS)
    checkpoints.save(20, parts(21), score=None)
    assert (checkpoints.verify(20).folder / MODEL).read_bytes() == parts(21)[MODEL]
    assert sorted(os.listdir(checkpoints.folder)) == [".bad-step-00000020.0", "step-00000010", "step-00000020"]
    for number in (1, 2):  # damaged again, and again: none that was set aside is lost
        flip(checkpoints.path(20) / COUNTERS)
        checkpoints.save(20, parts(21), score=None)
        assert (checkpoints.folder / f".bad-step-00000020.{number}").is_dir()


def test_a_checkpoint_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(RunFault, match="has no checkpoint of step 15; it has 10, 20"):
        saved(tmp_path, 10, 20).find_verified(15)
    with pytest.raises(RunFault, match="has no checkpoint"):
        saved(tmp_path / "none").find_verified("last")


def test_tensors_that_another_process_needs_are_not_read(tmp_path: Path) -> None:
    path, kept = tmp_path / "some.safetensors", {"a": torch.arange(3.0), "b": torch.full((2, 2), torch.nan)}
    path.write_bytes(b"".join(tensors.Serialized(kept)))
    found = tensors.read(path, tensors.specs(kept), {"b"})
    assert torch.equal(found["a"], kept["a"])
    assert found["b"].is_meta
    tensors.check_finite(found, path)
    with pytest.raises(RunFault, match="b contains values that are not finite"):
        tensors.check_finite(tensors.read(path), path)

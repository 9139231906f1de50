"""Checkpoints survive a crash at every operation, and damage is seen, told and never built upon."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hang import ending

from mini_tf.run import tensors
from mini_tf.run.checkpoint import COUNTERS, FILES, MANIFEST, MODEL, OBJECTIVE, Checkpoint, Checkpoints
from mini_tf.run.disk import Content, Disk, FileHashes, chunks, replace
from mini_tf.system.errors import RunFault, StorageFault


class ScriptedDisk(Disk):
    """Does what `act` says at its n-th operation, and keeps the list of operations."""

    def __init__(self, at: int, act: Callable[[str, Path, bytes], None]) -> None:
        self.at, self.act, self.trace = at, act, list[tuple[str, str]]()

    def _step(self, operation: str, path: Path, data: bytes = b"") -> None:
        self.trace.append((operation, path.name))
        if len(self.trace) == self.at:
            self.act(operation, path, data)

    def mkdir(self, folder: Path) -> None:
        self._step("mkdir", folder)
        super().mkdir(folder)

    def write(self, path: Path, data: Content) -> None:
        whole = b"".join(chunks(data))
        self._step("write", path, whole)
        super().write(path, [whole])

    def sync(self, folder: Path) -> None:
        self._step("sync", folder)
        super().sync(folder)

    def rename(self, old: Path, new: Path) -> None:
        self._step("rename", old)
        super().rename(old, new)

    def remove(self, folder: Path) -> None:
        self._step("remove", folder)
        super().remove(folder)


def die(operation: str, path: Path, data: bytes) -> None:
    os._exit(9)


def die_with_half_a_file(operation: str, path: Path, data: bytes) -> None:
    if operation == "write":
        path.write_bytes(data[: len(data) // 2])
    if operation == "remove":
        (path / MODEL).unlink()
    os._exit(9)


def fill_up(operation: str, path: Path, data: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def fill_up_in_the_middle(operation: str, path: Path, data: bytes) -> None:
    if operation == "write":
        path.write_bytes(data[: len(data) // 2])
    fill_up(operation, path, data)


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


def in_a_child(action: Callable[[], object]) -> int:
    """The exit code of the action in a forked process: 9 if it died on its way, else 0."""
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def operations_of_a_save(folder: Path) -> list[tuple[str, str]]:
    disk = ScriptedDisk(0, die)
    checkpoints = saved(folder, 10, 20, disk=Disk())
    checkpoints.disk = disk
    checkpoints.save(30, parts(30), score=None)
    checkpoints.rotate(keep_last=2, keep_best=0)
    return disk.trace


@pytest.mark.parametrize("death", [die, die_with_half_a_file])
def test_a_save_killed_at_any_operation_leaves_the_old_or_the_new_checkpoint(
    tmp_path: Path, death: Callable[..., None]
) -> None:
    n_operations = len(operations_of_a_save(tmp_path / "trace"))
    saved(tmp_path / "before", 10, 20)
    seen = set()
    for at in range(1, n_operations + 1):
        folder = tmp_path / f"kill-{at}"
        shutil.copytree(tmp_path / "before", folder)

        def save_and_rotate(folder: Path = folder, at: int = at) -> None:
            checkpoints = saved(folder, disk=ScriptedDisk(at, death))
            checkpoints.save(30, parts(30), score=None)
            checkpoints.rotate(keep_last=2, keep_best=0)

        assert in_a_child(save_and_rotate) == 9
        found, warnings = newest(folder)
        assert found.step in (20, 30)
        assert not warnings
        assert (found.folder / MODEL).read_bytes() == parts(found.step)[MODEL]
        seen.add(found.step)

        again = saved(folder, 30)  # the next save goes through, and sweeps what was left
        again.rotate(keep_last=2, keep_best=0)
        assert sorted(os.listdir(again.folder)) == ["step-00000020", "step-00000030"]
    assert seen == {20, 30}


def test_files_are_safe_before_the_folder_gets_its_name_and_the_name_before_anything_is_removed(tmp_path: Path) -> None:
    trace = operations_of_a_save(tmp_path)
    temporary = ".tmp-step-00000030"
    writes = [i for i, (operation, _) in enumerate(trace) if operation == "write"]
    order = [
        writes[-1],
        *(trace.index(step) for step in [("sync", temporary), ("rename", temporary), ("sync", "checkpoints")]),
    ]
    assert order == sorted(order)
    assert trace[writes[-1]] == ("write", MANIFEST)
    assert trace.index(("remove", ".trash-step-00000010")) > order[-1]


def test_a_disk_that_fills_up_at_any_operation_is_told_and_the_last_checkpoint_stays(tmp_path: Path) -> None:
    operations = operations_of_a_save(tmp_path / "trace")
    for at in range(1, operations.index(("rename", "step-00000010")) + 1):
        checkpoints = saved(tmp_path / str(at), 10, 20)
        checkpoints.disk = ScriptedDisk(at, fill_up)
        with pytest.raises(
            StorageFault, match=r"saving step 30 failed: .*No space left .*; the last checkpoint is step"
        ):
            checkpoints.save(30, parts(30), score=None)
        assert newest(tmp_path / str(at))[0].step in (20, 30)
        assert not any(name.startswith(".tmp-") for name in os.listdir(checkpoints.folder))


@pytest.mark.parametrize("at", [1, 2], ids=["write", "rename"])
def test_a_file_that_cannot_be_replaced_stays_as_it_was_with_nothing_beside_it(at: int, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(b"old")
    with pytest.raises(OSError, match="No space left"):
        replace(ScriptedDisk(at, fill_up_in_the_middle), tmp_path / "run.json", b"new and longer")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"run.json": b"old"}


def test_a_save_that_cannot_fit_is_refused_before_it_writes(tmp_path: Path) -> None:
    class SmallDisk(Disk):
        def free(self, folder: Path) -> int:
            return 100

    with pytest.raises(StorageFault, match=r"MiB are needed and 0 MiB are free; there is no earlier checkpoint"):
        saved(tmp_path, 10, disk=SmallDisk())
    assert os.listdir(tmp_path / "checkpoints") == []


def test_a_save_asks_for_room_for_itself_and_for_as_much_again(tmp_path: Path) -> None:
    """The model that is published of it, and whatever else is written beside it."""
    needed = 2 * sum(len(data) for data in parts(10).values())

    class Measured(Disk):
        def __init__(self, bytes_free: int) -> None:
            self.bytes_free = bytes_free

        def free(self, folder: Path) -> int:
            return self.bytes_free

    with pytest.raises(StorageFault, match="MiB are needed"):
        saved(tmp_path, 10, disk=Measured(needed - 1))
    assert os.listdir(tmp_path / "checkpoints") == []
    assert saved(tmp_path, 10, disk=Measured(needed)).verify(10).step == 10


def truncate(checkpoint: Path) -> None:
    os.truncate(checkpoint / MODEL, 10)


def fill_with_zeros(checkpoint: Path) -> None:
    (checkpoint / MODEL).write_bytes(bytes((checkpoint / MODEL).stat().st_size))


def flip_a_bit(checkpoint: Path) -> None:
    data = bytearray((checkpoint / COUNTERS).read_bytes())
    data[7] ^= 1
    (checkpoint / COUNTERS).write_bytes(data)


def lose_a_file(checkpoint: Path) -> None:
    (checkpoint / MODEL).unlink()


def break_the_manifest(checkpoint: Path) -> None:
    (checkpoint / MANIFEST).write_text("{not json")


def point_out_of_the_folder(checkpoint: Path) -> None:
    manifest = json.loads((checkpoint / MANIFEST).read_text())
    manifest["files"]["../../etc/passwd"] = manifest["files"].pop(MODEL)
    (checkpoint / MANIFEST).write_text(json.dumps(manifest))


DAMAGES = [truncate, fill_with_zeros, flip_a_bit, lose_a_file, break_the_manifest, point_out_of_the_folder]


@pytest.mark.parametrize("damage", DAMAGES)
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
    checkpoints = saved(tmp_path, 10, 20)
    for step in (10, 20):
        truncate(checkpoints.path(step))
    for _ in range(2):
        with pytest.raises(RunFault, match="no usable checkpoint in"):
            checkpoints.newest(lambda line: None)


def test_where_never_a_checkpoint_was_saved_there_is_none(tmp_path: Path) -> None:
    assert saved(tmp_path).newest(lambda line: None) is None


def test_a_checkpoint_of_another_run_or_a_later_format_is_refused(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 10)
    with pytest.raises(RunFault, match=r"belongs to another run \(run-1, not run-2\)"):
        Checkpoints(checkpoints.folder, "run-2", Disk()).find_verified("last")
    manifest = checkpoints.path(10) / MANIFEST
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 3'))
    with pytest.raises(RunFault, match="has format 3; this version of minitf reads format 1"):
        checkpoints.newest(lambda line: None)


def test_a_checkpoint_that_is_a_link_out_of_the_run_is_refused_and_its_target_untouched(tmp_path: Path) -> None:
    outside = saved(tmp_path / "outside", 10)
    inside = saved(tmp_path / "inside", 20)
    inside.path(30).symlink_to(outside.path(10))
    with pytest.raises(RunFault, match="is a link"):
        inside.rotate(keep_last=1, keep_best=0)
    assert outside.verify(10).step == 10


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


def test_a_file_that_changed_within_one_tick_of_its_time_is_hashed_again(tmp_path: Path) -> None:
    """As many bytes, and the same time of change by `os.utime`."""
    hashes, file = FileHashes(), tmp_path / "file"
    file.write_bytes(b"one")
    before, status = hashes.sha256(file), file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert hashes.sha256(file) == hashlib.sha256(b"two").hexdigest() != before


def test_rotation_reads_the_newest_back_from_the_disk(tmp_path: Path) -> None:
    """Not from the hashes of what was written, which a failing disk does not change."""
    checkpoints = saved(tmp_path, 10, 20)
    file = checkpoints.path(20) / MODEL
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    checkpoints.hashes.store(file, checkpoints.list_valid()[0].sha256[MODEL])
    with pytest.raises(StorageFault, match=r"cannot be read back: model\.safetensors: wrong checksum"):
        checkpoints.rotate(keep_last=1, keep_best=0)
    assert checkpoints.steps() == [20, 10]


def test_saving_a_step_again_changes_nothing(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 10)
    before = (checkpoints.path(10) / MODEL).stat().st_ino
    checkpoints.save(10, parts(11), score=None)
    assert (checkpoints.path(10) / MODEL).stat().st_ino == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_saving_a_step_whose_checkpoint_is_damaged_sets_that_aside(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    checkpoints = saved(tmp_path, 10, 20)
    damage(checkpoints.path(20))
    checkpoints.save(20, parts(21), score=None)
    assert (checkpoints.verify(20).folder / MODEL).read_bytes() == parts(21)[MODEL]
    assert sorted(os.listdir(checkpoints.folder)) == [".bad-step-00000020.0", "step-00000010", "step-00000020"]


def test_a_checkpoint_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(RunFault, match="has no checkpoint of step 15; it has 10, 20"):
        saved(tmp_path, 10, 20).find_verified(15)
    with pytest.raises(RunFault, match="has no checkpoint"):
        saved(tmp_path / "none").find_verified("last")


def test_a_pipe_in_the_place_of_a_file_does_not_keep_a_sync_waiting(tmp_path: Path) -> None:
    """Opened to read, a pipe waits for a writer, who never comes."""
    os.mkfifo(tmp_path / "pipe")
    with ending(20):
        Disk().sync(tmp_path / "pipe")


def test_tensors_that_another_process_needs_are_not_read(tmp_path: Path) -> None:
    path, kept = tmp_path / "some.safetensors", {"a": torch.arange(3.0), "b": torch.full((2, 2), torch.nan)}
    path.write_bytes(b"".join(tensors.Serialized(kept)))
    found = tensors.read(path, tensors.specs(kept), {"b"})
    assert torch.equal(found["a"], kept["a"])
    assert found["b"].is_meta
    tensors.check_finite(found, path)
    with pytest.raises(RunFault, match="b contains values that are not finite"):
        tensors.check_finite(tensors.read(path), path)

"""Section "checkpoint and model files" of the faults that minitf survives or refuses; every case begins with its row's
number.
"""

import errno
import hashlib
import io
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from commands import QUIET, TINY, Done, change, content, flip, minitf, trained
from hang import ending
from safetensors.torch import load_file, save_file

from mini_tf.optimizers import Parameter, adamw
from mini_tf.run import disk, location, manifest
from mini_tf.run.checkpoint import COUNTERS, FILES, MANIFEST, MODEL, OPTIMIZER, STATE, Checkpoints
from mini_tf.run.disk import Disk, FileHashes, chunks
from mini_tf.run.folder import Run
from mini_tf.run.identity import Identity
from mini_tf.run.loading import is_published
from mini_tf.run.location import RunLocation, open_run, start_run
from mini_tf.run.tensors import CheckpointTensors, ExpectedTensors, Serialized, read_specs, specs
from mini_tf.system.errors import RunFault, StorageFault

RECIPE = (
    *QUIET,
    "train.steps=6",
    "checkpoint.every_steps=2",
    "checkpoint.keep_last=9",
    "model.d_model=8",
    "train.context=16",
    "eval.every_steps=100",
)


def fail_on_warning(line: str) -> None:
    raise AssertionError(line)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with checkpoints of steps 2, 4 and 6; to be read only."""
    return trained(tmp_path_factory.mktemp("whole") / "run", *RECIPE)


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.fixture
def cut(copy: Path) -> Path:
    """As if the process had been killed after step 4 was saved."""
    shutil.rmtree(copy / "checkpoints" / "step-00000006")
    change(copy / "run.json", state="running")
    return copy


@pytest.fixture(autouse=True)
def _nothing_hangs() -> Iterator[None]:
    with ending():
        yield


def again(folder: Path, *overrides: str) -> Done:
    """The command that made the run."""
    return minitf("pretrain", TINY, *RECIPE, *overrides, "-d", folder)


def refused(done: Done, *words: str, exit_code: int = 5) -> None:
    """One line that says so, and nothing that steers a terminal."""
    assert done.exit_code == exit_code, done.stderr
    assert "Traceback" not in done.stderr
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.stderr)
    assert all(word in done.stderr for word in words), done.stderr
    assert len(done.stderr.splitlines()[-1]) < 2000


# Damage by accident: C3, C4, C18


def zero_filled(checkpoint: Path) -> None:
    (checkpoint / OPTIMIZER).write_bytes(bytes((checkpoint / OPTIMIZER).stat().st_size))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "zero-filled": zero_filled,
    "bit-flipped": lambda folder: flip(folder / MODEL),
    "a-file": lambda folder: (shutil.rmtree(folder), folder.write_text("")),
}
"""tests/run/test_run_checkpoint.py has more, which are set aside in the same way."""


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=[f"C3-{name}" for name in DAMAGES])
def test_a_damaged_newest_checkpoint_is_set_aside_and_the_run_ends_as_if_nothing_had_happened(
    cut: Path, whole: Path, damage: Callable[[Path], object]
) -> None:
    newest = cut / "checkpoints" / "step-00000004"
    damage(newest)
    done = again(cut)
    assert done.exit_code == 0, done.stderr
    assert "warning: step-00000004 is damaged (" in done.stderr
    assert (cut / "checkpoints" / ".bad-step-00000004.0").exists()
    for name in ("metrics.jsonl", MODEL, f"checkpoints/step-00000006/{OPTIMIZER}"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes()


PATIENT = ("eval.patience=2", "eval.every_steps=1", "optimizer.lr=1", "schedule.kind=constant")


@pytest.mark.parametrize(
    ("recipe", "damage"),
    [((), shutil.rmtree), (PATIENT, zero_filled)],
    ids=["C3-lost", "C3-damaged-after-patience"],
)
def test_an_extension_whose_first_checkpoint_is_lost_trains_up_to_it(
    recipe: tuple[str, ...], damage: Callable[[Path], object], whole: Path, tmp_path: Path
) -> None:
    """The steps before the extension have the rates, evaluations and patience of the run that ended there."""
    ended, extended, lost = (tmp_path / name for name in ("ended", "extended", "lost"))
    shutil.copytree(whole, ended) if not recipe else trained(ended, *RECIPE, *recipe)
    end = manifest.read(ended).step
    assert end < 6 if recipe else end == 6
    shutil.copytree(ended, extended)
    shutil.copytree(ended, lost)
    assert again(extended, *recipe, "--extend", "3").exit_code == 0
    damage(lost / "checkpoints" / f"step-{end:08d}")
    for more in (("--extend", "3"), ()):  # the second command finds it complete
        done = again(lost, *recipe, *more)
        assert done.exit_code == 0, done.stderr
    last = manifest.read(extended).step
    assert end < last <= end + 3
    for name in (
        "metrics.jsonl",
        MODEL,
        f"checkpoints/step-{last:08d}/{OPTIMIZER}",
        f"checkpoints/step-{end:08d}/{OPTIMIZER}",
    ):
        assert (lost / name).read_bytes() == (extended / name).read_bytes()


def test_c4_where_all_checkpoints_are_damaged_the_run_never_starts_over(cut: Path) -> None:
    for step in (2, 4):
        os.truncate(cut / "checkpoints" / f"step-{step:08d}" / MODEL, 10)
    before = content(cut)
    for _ in range(2):
        refused(
            again(cut),
            "no usable checkpoint in",
            "step-00000004 is damaged (model.safetensors: 10 bytes, not ",
            "--fresh",
        )
    assert content(cut) == before


def test_c18_a_checkpoint_that_cannot_be_read_is_passed_over_even_where_it_cannot_be_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoRename(Disk):
        def rename(self, old: Path, new: Path) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(old))

    class FailsInTheMiddle(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO), self.name)
            return super().read(20)

    def broken(path: Path) -> Any:
        return (FailsInTheMiddle if "step-00000002" in str(path) else open)(path, "rb")

    checkpoints = Checkpoints(tmp_path, "one", NoRename())
    parts = {name: b"x" * 50 for name in (MODEL, OPTIMIZER, STATE, COUNTERS)}
    for step in (1, 2):
        Checkpoints(tmp_path, "one", Disk()).save(step, parts, None)
    monkeypatch.setattr(disk, "open_plain", broken)
    warned: list[str] = []
    found = checkpoints.newest(warned.append)
    assert found is not None
    assert found.step == 1
    [line] = warned
    assert "step-00000002 is damaged (model.safetensors: Input/output error)" in line
    assert "it cannot be set aside (Read-only file system) and is skipped" in line
    shutil.rmtree(checkpoints.path(1))
    with pytest.raises(RunFault, match="no usable checkpoint"):
        checkpoints.newest(warned.append)


def test_c18_a_model_that_is_lost_with_its_checkpoint_gives_way_to_the_next_best_aloud(tmp_path: Path) -> None:
    """Evaluated at every save; the first is the best, and rotation keeps the newest alone."""
    keep = ("eval.every_steps=2", "checkpoint.keep_last=1", "checkpoint.keep_best=0")
    worse = (*keep, "optimizer.lr=9", "schedule.warmup=0", "optimizer.clip=0")
    run = trained(tmp_path / "run", *RECIPE, *worse)
    record = json.loads((run / "run.json").read_text())
    assert (os.listdir(run / "checkpoints"), record["model"]["step"]) == (["step-00000006"], 2)
    before = content(run)
    assert "warning" not in again(run, *worse).stderr
    assert content(run) == before
    flip(run / MODEL)
    done = again(run, *worse)
    assert done.exit_code == 0
    assert (
        "warning: model.safetensors (step 2) and its checkpoint are missing or damaged; the next best checkpoint"
        " replaces it: step 6\n" in (done.stderr)
    )
    record = json.loads((run / "run.json").read_text())
    assert (record["model"]["step"], record["metrics"]) == (6, {})
    assert "warning" not in again(run, *worse).stderr


def publishes(run: Path, step: int, recorded: int) -> None:
    """As if a process had been killed when it had put a checkpoint's model there, before run.json told of it."""
    (run / MODEL).write_bytes((run / "checkpoints" / f"step-{step:08d}" / MODEL).read_bytes())
    told = json.loads((run / "checkpoints" / f"step-{recorded:08d}" / MANIFEST).read_text())
    change(run / "run.json", model={"step": recorded, "score": told["score"], "sha256": told["files"][MODEL]["sha256"]})


def test_c1_a_model_that_was_published_just_before_a_kill_can_be_read_at_once(copy: Path) -> None:
    publishes(copy, 6, recorded=2)
    before = content(copy)
    done = minitf("generate", copy, "x", "--max-new-tokens", "1")
    assert done.exit_code == 0, done.stderr
    publishes(copy, 2, recorded=6)  # one that nobody publishes over a better one
    refused(minitf("generate", copy, "x"), "is damaged: its sha256 differs from that in run.json")
    publishes(copy, 6, recorded=2)
    assert {name: data for name, (_, data) in content(copy).items()} == {
        name: data for name, (_, data) in before.items()
    }


def test_c18_a_file_is_read_once_a_process_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, hashes, read = tmp_path / "file", FileHashes(), list[str]()

    class Watched(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            read.append(Path(str(self.name)).name)
            return super().read(size)

    monkeypatch.setattr(disk, "open_plain", lambda path: Watched(path, "rb"))
    path.write_bytes(b"one")
    assert hashes.sha256(path) == hashes.sha256(path) == hashlib.sha256(b"one").hexdigest()
    assert len(read) == 2  # the content, and its end
    path.write_bytes(b"other")
    assert hashes.sha256(path) == hashlib.sha256(b"other").hexdigest()
    hashes.drop(tmp_path)
    assert hashes.sha256(path) == hashlib.sha256(b"other").hexdigest()
    assert len(read) == 6
    with pytest.raises(ValueError, match="5 bytes, not 3"):
        hashes.sha256(path, 3)
    checkpoints = Checkpoints(tmp_path / "checkpoints", "one", Disk())
    parts = {name: b"x" * 50 for name in FILES}
    checkpoints.save(1, parts, None)
    checkpoints.save(2, parts, None)
    read.clear()
    assert checkpoints.find_verified("last") == checkpoints.newest()
    assert read == []  # what it wrote itself
    checkpoints.rotate(1, 0)
    assert sorted(read) == sorted([*FILES, *FILES])  # but read back before another goes


# Files made to harm: C5 to C12


def of_length(length: int, data: bytes = b"") -> bytes:
    return struct.pack("<Q", length) + data


def header(**tensors: Any) -> bytes:
    text = json.dumps(tensors).encode()
    return of_length(len(text), text)


def of_one(shape: Any, offsets: Any, n_bytes: int = 0) -> bytes:
    """A safetensors file of one tensor, whose content is `n_bytes` long."""
    return header(w={"dtype": "F32", "shape": shape, "data_offsets": offsets}) + bytes(n_bytes)


def twice(name: str) -> bytes:
    text = f'{{"{name}":1,"{name}":1}}'.encode()
    return of_length(len(text), text)


OVERLAPPING = {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in "ab"}
HEADERS: dict[str, tuple[bytes, str]] = {
    "C6-length-of-2^62": (of_length(1 << 62, b"{}"), "4611686018427387904 bytes exceeds the maximum of 2"),
    "C6-shape-overflows": (of_one([1 << 62, 1 << 62], [0, 0]), "cannot occupy bytes"),
    "C6-many-axes": (of_one([1 << 62] * 100_000, [0, 0]), "invalid shape"),
    "C6-offset-of-2^62": (of_one([1 << 60], [0, 1 << 62]), "its tensors end at byte"),
    "C6-offsets-overlap": (header(**OVERLAPPING) + bytes(4), "cannot occupy bytes 0 to 4"),
    "C6-offsets-negative": (of_one([1], [-4, 0], 4), "cannot occupy bytes"),
    "C6-offsets-of-text": (of_one([1], "04", 4), "cannot occupy bytes"),
    "C6-shape-of-text": (of_one("1", [0, 4], 4), "invalid shape 1"),
    "C6-names-twice": (of_length(14, b'{"w":1,"w":1} '), "duplicate key 'w'"),
    "C6-names-of-40-twice": (twice("w" * 40), f"duplicate key '{'w' * 40}'"),
    "C6-names-of-41-twice": (twice("w" * 41), f"duplicate key '{'w' * 40}...'"),
    "C6-empty": (b"", "not a safetensors file"),
    "C6-seven-bytes": (bytes(7), "it has 7 bytes, fewer than the 8"),
    "C6-length-0": (bytes(8), "not a safetensors file: Expecting value"),
    "C6-length-of-one-more": (of_length(9, b"{}      "), "length of 9 bytes exceeds the maximum of 8"),
    "C6-list": (of_length(2, b"[]"), "its header is not a JSON object"),
    "C6-no-shape": (header(w={"dtype": "F32"}), "a tensor has no 'shape'"),
    "C6-unknown-type": (header(w={"dtype": "F8_E8M0", "shape": [4]}), "unknown dtype 'F8_E8M0'"),
    "C6-no-content": (of_one([0, 1 << 62], [0, 4], 4), "cannot occupy bytes 0 to 4"),
    "C6-content-cut": (of_one([2], [0, 8], 4), "its tensors end at byte 8, its content at byte 4"),
    "C6-content-behind": (of_one([1], [0, 4], 8), "its tensors end at byte 4, its content at byte 8"),
    "C6-nested": (of_length(100_000, b"[" * 100_000), "not a safetensors file"),
    "C6-number": (of_length(5008, b'{"w": 1' + b"0" * 5000 + b"}"), "a number has 5,001 digits, more than 4,000"),
}


@pytest.mark.parametrize(("data", "words"), HEADERS.values(), ids=HEADERS)
def test_a_file_with_a_hostile_header_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / MODEL).write_bytes(data)
    with pytest.raises(RunFault, match=re.escape(words)):
        read_specs(tmp_path / MODEL)


RECORDS: dict[str, tuple[dict[str, Any], str]] = {
    "C5-other-types": ({"best": {"step": "x"}}, "run.json is damaged: best"),
    "C5-not-finite": ({"started": float("inf")}, "Infinity is not a finite number"),
    "C5-threads": ({"auto": {"threads": -1}}, "threads cannot be '-1'"),
    "C5-no-rows": ({"auto": {"micro_batch_size": False}}, "micro_batch_size cannot be 'False'"),
    "C5-precision": ({"auto": {"precision": "\x1b"}}, "auto: Value error, precision cannot be"),
    "C5-number-in-quotes": ({"metrics": {"val.loss": "1e999"}}, "metrics.val.loss: Input should be a valid number"),
    "C5-step-true": ({"model": {"step": True, "score": None, "sha256": ""}}, "step cannot be 'True'"),
    "C5-extension-in-quotes": ({"extensions": [["6", "3"]]}, "extensions.0.0: Input should be a valid integer"),
    "C10-newer-run": ({"format": 4}, "has format 4; this version of minitf reads format 1"),
    "C10-newer-run-of-many-digits": ({"format": 10**3000}, "has format 1000"),
}


@pytest.mark.parametrize(("fields", "words"), RECORDS.values(), ids=RECORDS)
def test_a_run_json_that_is_not_sound_is_refused(
    whole: Path, tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    shutil.copy(whole / "run.json", tmp_path)
    change(tmp_path / "run.json", **fields)
    with pytest.raises(RunFault, match=re.escape(words)):
        manifest.read(tmp_path)


def rewritten(change_tensors: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], object]:
    """model.safetensors with other tensors."""

    def rewrite(folder: Path) -> None:
        tensors = load_file(folder / MODEL)
        change_tensors(tensors)
        save_file(tensors, folder / MODEL)

    return rewrite


def first(tensors: dict[str, torch.Tensor], other: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Put another tensor in place of the first one."""
    name = next(iter(tensors))
    tensors[name] = other(tensors[name])


class Touch:
    """What a pickle can do to whoever opens it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("sentinel",)


def put(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def large(name: str) -> Callable[[Path], object]:
    return lambda folder: os.truncate(folder / name, 17 << 20)


def over_the_limit(folder: Path) -> None:
    (folder / MODEL).write_bytes(of_length(9 << 20))
    os.truncate(folder / MODEL, 1 << 30)


MODELS: dict[str, tuple[Callable[[Path], object], str]] = {
    "C6-header-over-the-limit": (over_the_limit, "length of 9437184 bytes exceeds the maximum of 8388608"),
    "C6-name-with-escape": (rewritten(lambda w: w.update({"\x1b]0;owned\x07": torch.zeros(1)})), "is not expected"),
    "C6-name-without-end": (rewritten(lambda w: w.update({"x" * 100_000: torch.zeros(1)})), "xxx is not expected"),
    "C7-pickle": (
        lambda folder: torch.save({"w": Touch()}, folder / MODEL),
        "pickle files (.pt, .bin, .ckpt) can run code and are never opened",
    ),
    "C8-extra-tensors": (
        rewritten(lambda w: w.update({f"extra{i}": torch.zeros(1) for i in range(7)})),
        "extra4 is not expected (and 2 more)",
    ),
    "C8-missing-tensors": (rewritten(dict.clear), "more)"),
    "C8-another-shape": (rewritten(lambda w: first(w, lambda _: torch.zeros(3, 5))), "is [3, 5] float32, not ["),
    "C8-another-type": (rewritten(lambda w: first(w, torch.Tensor.half)), "float16, not ["),
    "C9-not-finite": (
        rewritten(lambda w: first(w, lambda tensor: tensor * float("nan"))),
        "contains values that are not finite",
    ),
    "C11-foreign-config": (
        put("config.json", '{"auto_map": {"AutoModel": "evil.Model"}, "model_type": "evil"}'),
        "not a config.json of minitf",
    ),
    "C11-foreign-folder": (lambda folder: (folder / "run.json").unlink(), "is not a run folder"),
    "C11-config-nested": (put("config.json", "[" * 100_000), "config.json of minitf: nested too deeply"),
    "C11-config-too-large": (large("config.json"), "config.json of minitf: it is larger than 16 MiB"),
    "C11-config-of-a-long-text": (
        lambda folder: change(folder / "config.json", context="x" * 5000),
        "must be an integer from 1 to",
    ),
    "C11-config-of-many-digits": (
        lambda folder: change(folder / "config.json", vocabulary_size=10**3000),
        "differs from the tokenizer's 260",
    ),
    "C5-run.json-endless-number": (
        put("run.json", '{"format": 1, "seed": 1' + "0" * 5000 + "}"),
        "a number has 5,001 digits, more than 4,000",
    ),
    "C5-run.json-no-object": (put("run.json", "[1]"), "it is not a JSON object"),
    "C5-run.json-too-large": (large("run.json"), "it is larger than 16 MiB"),
}


@pytest.mark.parametrize(("harm", "words"), MODELS.values(), ids=MODELS)
def test_a_model_that_is_not_sound_is_refused_and_nothing_is_changed_or_run(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], object], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    harm(copy)
    before = content(copy) if (copy / MODEL).stat().st_size < 1 << 20 else None
    refused(minitf("generate", copy, "x"), words)
    assert os.listdir(tmp_path) == ["run"]
    assert before is None or content(copy) == before


def entry(checkpoint: Path, **fields: Any) -> None:
    change(checkpoint / MANIFEST, **fields)


def files_of(checkpoint: Path) -> dict[str, Any]:
    return dict(json.loads((checkpoint / MANIFEST).read_text())["files"])


def named(checkpoint: Path, name: str) -> None:
    files = files_of(checkpoint)
    entry(checkpoint, files=files | {name: files[MODEL]})


def lists(**fields: Any) -> Callable[[Path], object]:
    return lambda folder: entry(folder, **fields)


def piped(name: str) -> Callable[[Path], object]:
    return lambda folder: ((folder / name).unlink(), os.mkfifo(folder / name))


MANIFESTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "C5-path-out": (lambda folder: named(folder, "../../etc/passwd"), "lists other files"),
    "C5-absolute-path": (lambda folder: named(folder, "/etc/passwd"), "lists other files"),
    "C5-many-entries": (lists(files=dict.fromkeys(map(str, range(100_000)), 0)), "not a manifest"),
    "C5-too-large": (large(MANIFEST), "it is larger than 16 MiB"),
    "C5-wrong-sizes": (
        lambda folder: entry(folder, files={name: file | {"bytes": 1} for name, file in files_of(folder).items()}),
        "bytes, not 1",
    ),
    **{
        f"C5-score-{score!r}": (lists(score=score), "lists other files or another step")
        for score in ("1", True, -1e301, [1.0])
    },
    "C5-size-of-many-digits": (
        lists(files={name: {"sha256": "", "bytes": 10**3000} for name in FILES}),
        "lists other files",
    ),
    "C5-files-no-mapping": (lists(files=[]), "not a manifest"),
    "C5-later-step": (lists(step=7), "another step"),
    "C5-earlier-step": (lists(step=1), "another step"),
    "C5-another-run": (lists(run="\x1b[2J"), "belongs to another run"),
    "C10-newer-checkpoint": (lists(format=3), "has format 3; this version of minitf reads format 1"),
    "C16-file-is-a-pipe": (piped(MODEL), "it is a pipe"),
    "C16-manifest-is-a-pipe": (piped(MANIFEST), "it is a pipe"),
    "C16-step-is-a-link": (
        lambda folder: (folder.rename(folder.parents[2] / "away"), folder.symlink_to("../../away")),
        "is a link",
    ),
}


@pytest.mark.parametrize(("harm", "words"), MANIFESTS.values(), ids=MANIFESTS)
def test_a_checkpoint_with_a_hostile_manifest_is_refused_and_nothing_is_changed(
    copy: Path, harm: Callable[[Path], object], words: str
) -> None:
    harm(copy / "checkpoints" / "step-00000006")
    names = sorted(str(path) for path in copy.rglob("*"))
    with pytest.raises(RunFault, match=words):
        Checkpoints.of(copy).find_verified("last")
    assert sorted(str(path) for path in copy.rglob("*")) == names


def test_c5_a_command_tells_a_damaged_checkpoint_in_one_line(copy: Path) -> None:
    entry(copy / "checkpoints" / "step-00000006", run="\x1b[2J")
    refused(minitf("evaluate", copy, "--step", "last"), "belongs to another run")


# What lies in a run folder may lead nowhere else: C16


NAMES = ["metrics.jsonl", "timing.jsonl", "log.txt", "samples", "checkpoints", "loss.svg", "run.json"]
NAMES += [".tmp-run.json", ".tmp-model.safetensors"]
INSIDE = [
    f"checkpoints/{name}"
    for name in (".tmp-step-00000006", ".trash-step-00000002", ".bad-step-00000002.0", "step-00000009")
]


def linked_out(path: Path, outside: Path, is_folder: bool) -> None:
    """A link in place of what is there, if anything is."""
    if is_folder:
        outside.mkdir()
        (outside / "mine").write_text("mine")
    else:
        outside.write_bytes(path.read_bytes() if path.name == "run.json" else b"mine")
    if path.is_dir():
        path.rename(outside.parent / "aside")
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(outside)


@pytest.mark.parametrize("name", [*NAMES, *INSIDE], ids=lambda name: f"C16-{name}")
def test_a_link_in_a_run_folder_is_refused_before_anything_is_written(
    starts: dict[str, Path], tmp_path: Path, name: str
) -> None:
    folder, outside = Path(shutil.copytree(starts["second"], tmp_path / "run")), tmp_path / "outside"
    linked_out(folder / name, outside, name in ("samples", "checkpoints", *INSIDE))
    before, theirs = content(folder), content(outside) if outside.is_dir() else outside.read_bytes()
    plain = re.escape(f"{folder / name} is a link; a run folder may contain only plain files and folders")
    with pytest.raises(RunFault, match=plain):
        live(folder)
    assert content(folder) == before
    assert (content(outside) if outside.is_dir() else outside.read_bytes()) == theirs


def test_c16_a_command_writes_nothing_where_a_link_leads_out_of_its_run(cut: Path, tmp_path: Path) -> None:
    linked_out(cut / "log.txt", tmp_path / "outside", is_folder=False)
    before = content(cut)
    refused(again(cut), "log.txt is a link; a run folder may contain only plain files and folders")
    assert (content(cut), (tmp_path / "outside").read_bytes()) == (before, b"mine")


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        before = os.getcwd()
        os.chdir(path.parent)  # a socket's address is short
        listening.bind(path.name)
        os.chdir(before)


@pytest.mark.parametrize(
    ("name", "make", "what"),
    [
        ("metrics.jsonl", os.mkfifo, "a pipe"),
        ("log.txt", os.mkfifo, "a pipe"),
        ("run.json", os.mkfifo, "a pipe"),
        ("samples", a_socket, "a socket"),
        ("checkpoints/.tmp-step-00000006", os.mkfifo, "a pipe"),
    ],
    ids=lambda value: f"C16-{value}" if isinstance(value, str) else "by",
)
def test_a_pipe_or_a_socket_in_a_run_folder_is_refused_at_once(
    starts: dict[str, Path], tmp_path: Path, name: str, make: Callable[[Path], None], what: str
) -> None:
    folder = Path(shutil.copytree(starts["second"], tmp_path / "run"))
    if (folder / name).is_dir():
        shutil.rmtree(folder / name)
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    with pytest.raises(RunFault, match=f"is {what}; a run folder may contain only plain files and folders"):
        live(folder)


@pytest.mark.parametrize("name", ["run.json", MODEL, "metrics.jsonl"], ids=lambda name: f"C16-{name}")
@pytest.mark.parametrize("command", [("runs", "show"), ("runs", "list"), ("generate",)], ids=" ".join)
def test_a_command_that_reads_never_waits_on_a_pipe(copy: Path, name: str, command: tuple[str, ...]) -> None:
    (copy / name).unlink()
    os.mkfifo(copy / name)
    done = minitf(
        *command, copy.parent if command[-1] == "list" else copy, *(["x"] if command == ("generate",) else [])
    )
    if done.exit_code:
        refused(done, "it is a pipe" if name != "run.json" or command[0] != "runs" else "")


def test_a_backup_by_hard_links_keeps_its_bytes_when_the_run_goes_on(cut: Path, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(cut, tmp_path / "backup", copy_function=os.link)
    before = {name: data for name, (_, data) in content(tmp_path / "backup").items()}
    assert again(cut).exit_code == 0
    assert {name: data for name, (_, data) in content(tmp_path / "backup").items()} == before
    assert (cut / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_c16_the_disk_neither_follows_a_link_nor_waits_on_a_pipe(tmp_path: Path) -> None:
    target, disk = tmp_path / "target", Disk()
    target.write_text("mine")
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept").touch()
    (tmp_path / "folder link").symlink_to(tmp_path / "folder")
    os.mkfifo(tmp_path / "pipe")
    for act in (
        lambda: disk.append(tmp_path / "link", b"x"),
        lambda: disk.truncate(tmp_path / "link", 0),
        lambda: disk.sync(tmp_path / "link"),
    ):
        with pytest.raises(OSError, match="symbolic link"):
            act()
    for act in (lambda: disk.append(tmp_path / "pipe", b"x"), lambda: disk.truncate(tmp_path / "pipe", 0)):
        with pytest.raises(OSError, match=r"pipe|No such device"):
            act()
    # Some file systems have no fsync of a pipe; opened to read, it would wait for a writer.
    with ending(20), suppress(OSError):
        disk.sync(tmp_path / "pipe")
    with pytest.raises(OSError, match="link, not a folder"):
        disk.mkdir(tmp_path / "folder link")
    disk.write(tmp_path / "link", b"new")  # takes its place
    disk.remove(tmp_path / "folder link")
    assert (target.read_text(), (tmp_path / "link").read_bytes(), os.listdir(tmp_path / "folder")) == (
        "mine",
        b"new",
        ["kept"],
    )


# Whatever the disk does: C1, C2, C13, C14, C15, C18

ONE = Identity("one", "train: {}\n", "train: {steps: 2}\n", {"train.steps": 2}, {"train": "aa"}, {"train.steps": 2})
OPERATIONS = ("mkdir", "write", "append", "truncate", "sync", "rename", "remove")


class Operation(NamedTuple):
    """One use of the disk."""

    name: str
    arguments: tuple[Any, ...]

    def half(self, of: Path | None = None, instead: Path = Path()) -> None:
        """What is there when the power goes in the middle; in the copy `instead` of the folder `of`, if it is given."""
        first = self.arguments[0]
        path = first if of is None else instead / first.relative_to(of)
        if self.name in ("write", "append"):
            data = self.arguments[1]
            with open(path, "wb" if self.name == "write" else "ab") as file:
                file.write(data[: len(data) // 2])
        if self.name == "remove" and path.is_dir():
            min(path.iterdir()).unlink()  # not the first, which may be another one in a copy


class FaultyDisk(Disk):
    """Hands its operation number `at` (from 1), or each for 0, to `fault` before it does it."""

    def __init__(self, at: int, fault: Callable[[Operation], None]) -> None:
        self.at, self.fault, self.trace = at, fault, list[Operation]()


def _faulty(name: str) -> Callable[..., None]:
    def operate(self: FaultyDisk, *arguments: Any) -> None:
        if name in ("write", "append"):
            path, data = arguments
            arguments = path, b"".join(chunks(data))  # which can be read once only
        self.trace.append(Operation(name, arguments))
        if self.at in (0, len(self.trace)):
            self.fault(self.trace[-1])
        getattr(Disk, name)(self, *arguments)

    return operate


for _name in OPERATIONS:
    setattr(FaultyDisk, _name, _faulty(_name))


def kept_at(step: int) -> CheckpointTensors:
    return CheckpointTensors(
        {"w": torch.full((500, 3), float(step))},
        {"step": torch.tensor(step), "w.exp_avg": torch.ones(500, 3) / step},
        {},
    )


def live(folder: Path, disk: Disk | None = None, until: int = 2) -> Run:
    """A run's whole life, or the rest of it, with a tiny model that is its own step."""
    with open_run(RunLocation(folder), ONE, disk=disk) as run:
        start_run(run, ONE)
        saved = run.resume(fail_on_warning)
        left = [path for path in run.folder.rglob(".t*-*") if path.name.startswith((".tmp-", ".trash-"))]
        assert not left, "what interrupted work left is swept when a run continues"
        for step in range(saved.step if saved else 0, until):
            run.record({"step": step + 1, "loss": 1 / (step + 1)}, 0.5)
            run.save(step + 1, kept_at(step + 1), {"tokens": step}, score=9.0 - step)
            run.publish()
            run.rotate(keep_last=1, keep_best=1)
            run.write_sample(step + 1, f"after step {step + 1}")
        run.log("a line")
        if until == 2:
            run.finish("done", metrics={"val.loss": 7.0})
    return run


def operations(start: Path, folder: Path) -> list[Operation]:
    shutil.copytree(start, folder)
    disk = FaultyDisk(-1, die)
    live(folder, disk)
    return disk.trace


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders as a process may find them: an empty one, one after a step, and the end they all must come to."""
    folder = tmp_path_factory.mktemp("starts")
    (folder / "new").mkdir()
    live(folder / "second", until=1)
    live(folder / "end")
    return {path.name: path for path in folder.iterdir()}


def judge(folder: Path, steps: set[int | None], end: Path) -> int | None:
    """After a fault: the newest checkpoint is sound and one of `steps`, and the same command comes to the same end. Its
    step.
    """
    if (folder / "run.json").exists():
        manifest.read(folder)
    newest = Checkpoints(folder / "checkpoints", ONE.run_id, Disk()).newest(fail_on_warning)
    assert (newest and newest.step) in steps
    run = live(folder)
    assert is_published(folder, run.manifest, FileHashes())
    for name in (
        "metrics.jsonl",
        "timing.jsonl",
        MODEL,
        *(f"checkpoints/step-00000002/{name}" for name in (MODEL, OPTIMIZER, COUNTERS)),
    ):
        assert (folder / name).read_bytes() == (end / name).read_bytes()
    assert set(os.listdir(folder / "checkpoints")) <= {"step-00000001", "step-00000002"}
    assert not list(folder.rglob(".tmp-*"))
    return newest and newest.step


def held(folder: Path) -> dict[str, bytes | None]:
    """All that is below a folder, None for a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def die(operation: Operation) -> None:
    """In the middle of it where it has one, else before it; and so after the one before."""
    operation.half()
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("start", ["C1-new", "C1-second"])
def test_a_run_killed_at_any_operation_has_the_old_or_the_new_checkpoint_and_comes_to_the_same_end(
    starts: dict[str, Path], tmp_path: Path, start: str
) -> None:
    """What a kill would leave is copied: the folder before each operation of one run, and half of the operation."""
    folder, left = Path(shutil.copytree(starts[start.removeprefix("C1-")], tmp_path / "run")), list[Path]()

    def copy(operation: Operation) -> None:
        left.append(Path(shutil.copytree(folder, tmp_path / str(len(left)))))
        operation.half(folder, left[-1])

    live(folder, FaultyDisk(0, copy), until=1 if start == "C1-new" else 2)  # what follows is the other start
    assert len(left) > 20
    steps: set[int | None] = {None, 1} if start == "C1-new" else {1, 2}
    assert {judge(killed, steps, starts["end"]) for killed in left} == steps


@pytest.mark.parametrize("name", [pytest.param(name, id=f"C1-{name}") for name in OPERATIONS if name != "truncate"])
def test_a_killed_process_leaves_what_such_a_copy_holds(starts: dict[str, Path], tmp_path: Path, name: str) -> None:
    """On which all tests rest that copy a folder instead of killing a process."""
    at = [operation.name for operation in operations(starts["second"], tmp_path / "trace")].index(name)
    folder, copy = Path(shutil.copytree(starts["second"], tmp_path / "run")), tmp_path / "copy"

    def copy_and_die(operation: Operation) -> None:
        shutil.copytree(folder, copy)
        operation.half(folder, copy)
        die(operation)

    child = os.fork()
    if child == 0:
        live(folder, FaultyDisk(at + 1, copy_and_die))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert held(folder) == held(copy)
    judge(folder, {1, 2}, starts["end"])


ERRORS = [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG]


def test_c13_a_disk_that_fails_at_any_operation_is_told_and_the_same_command_comes_to_the_same_end(
    starts: dict[str, Path], tmp_path: Path
) -> None:
    def fail(operation: Operation) -> None:
        operation.half()
        code = ERRORS[len(disk.trace) % len(ERRORS)]
        raise OSError(code, os.strerror(code), str(operation.arguments[0]))

    for at, operation in enumerate(operations(starts["second"], tmp_path / "trace"), 1):
        if operation.arguments[0].name == "log.txt":  # the console takes no notice
            continue
        folder = tmp_path / str(at)
        shutil.copytree(starts["second"], folder)
        disk = FaultyDisk(at, fail)
        with pytest.raises(StorageFault, match=r" failed: .+ \(/.+\)") as told:
            live(folder, disk)
        assert "the same command continues" in str(told.value.hint)
        assert not list(folder.rglob(".tmp-*"))
        judge(folder, {1, 2}, starts["end"])


def test_c13_a_largest_file_size_is_told_and_the_last_checkpoint_stays(starts: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(starts["second"], tmp_path / "run"))
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
        try:
            live(folder)
        except StorageFault as fault:
            told = f"{fault.message}; {fault.hint}"
            os._exit(
                0
                if re.search(
                    r"saving step 2 failed: File too large .*last checkpoint is step 1; raise the file size limit", told
                )
                else 8
            )
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not list(folder.rglob(".tmp-*"))
    judge(folder, {1}, starts["end"])


def test_c13_space_is_looked_for_before_anything_is_written(starts: dict[str, Path], tmp_path: Path) -> None:
    class SmallDisk(FaultyDisk):
        def free(self, folder: Path) -> int:
            return 100

    folder = Path(shutil.copytree(starts["second"], tmp_path / "run"))
    disk = SmallDisk(-1, die)
    with pytest.raises(
        StorageFault, match=r"saving step 2 failed: 0 MiB are needed and 0 MiB are free; the last checkpoint is step 1"
    ):
        live(folder, disk)
    assert not [operation for operation in disk.trace if "step-00000002" in str(operation.arguments[0])]


def test_c14_a_folder_that_may_not_be_written_is_told_and_stays_as_it_is(
    starts: dict[str, Path], tmp_path: Path
) -> None:
    class ReadOnly(FaultyDisk):
        pass

    def forbid(self: Disk, *arguments: Any) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(arguments[0]))

    for name in OPERATIONS:
        setattr(ReadOnly, name, forbid)
    folder = Path(shutil.copytree(starts["second"], tmp_path / "run"))
    before = content(folder)
    with pytest.raises(StorageFault, match=r"failed: Permission denied") as told:
        live(folder, ReadOnly(-1, die))
    assert told.value.hint == "make the folder writable; the same command continues"
    assert content(folder) == before
    with pytest.raises(StorageFault, match=r"cannot create .*Permission denied"):
        live(tmp_path / "another", ReadOnly(-1, die))
    assert not (tmp_path / "another").exists()


def test_c2_what_gets_a_name_is_on_the_disk_before_and_the_name_is_after(
    starts: dict[str, Path], tmp_path: Path
) -> None:
    """Watched below the seam: at what Python asks of the system."""
    trace: list[tuple[str, str]] = []
    sync, rename = os.fsync, os.replace

    def watched_sync(descriptor: int) -> None:
        trace.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def watched_rename(old: Path, new: Path) -> None:
        trace.append(("rename", str(old)))
        trace.append(("to", str(new)))
        rename(old, new)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", watched_sync)
        patch.setattr(os, "replace", watched_rename)
        live(tmp_path / "parent" / "run")
    assert ("sync", str(tmp_path)) in trace
    assert ("sync", str(tmp_path / "parent")) in trace
    renames = [at for at, (what, _) in enumerate(trace) if what == "rename"]
    assert len(renames) > 15
    for at in renames:
        old, new = Path(trace[at][1]), Path(trace[at + 1][1])
        assert ("sync", str(new.parent)) in trace[at + 2 :]
        if not new.name.startswith(".trash-"):
            assert ("sync", str(old)) in trace[:at]
        if new.name.startswith("step-0") and not new.suffix:
            files = [str(old / name) for name in (MODEL, OPTIMIZER, STATE, COUNTERS, MANIFEST)]
            assert [path for what, path in trace[:at] if what == "sync" and path.startswith(str(old))] == [
                *files,
                str(old),
            ]
            assert trace[at + 2] == ("sync", str(new.parent))


def test_c15_rotation_removes_nothing_unless_the_newest_can_be_read_back(tmp_path: Path) -> None:
    parts = {name: b"x" * 50 for name in (MODEL, OPTIMIZER, STATE, COUNTERS)}
    checkpoints, others = (Checkpoints(tmp_path, run_id, Disk()) for run_id in ("one", "another"))
    for step in (1, 2, 4):
        checkpoints.save(step, parts, None)
    others.save(3, parts, None)
    newest = checkpoints.path(4) / MODEL
    flip(newest)
    checkpoints.hashes.store(newest, checkpoints.list_valid()[0].sha256[MODEL])  # which a failing disk does not change
    with pytest.raises(StorageFault, match=r"cannot be read back: model\.safetensors: wrong checksum"):
        checkpoints.rotate(1, 0)
    assert checkpoints.steps() == [4, 3, 2, 1]
    flip(newest)
    checkpoints.rotate(1, 0)
    assert checkpoints.steps() == [4, 3]  # the other run's is left alone


# What a checkpoint with a right manifest may hold all the same: C6, C17

BAD_COUNTERS: dict[str, tuple[bytes, str]] = {
    "text": (b'{"step": 2, "tokens": "many"}', "invalid counter tokens"),
    "negative": (b'{"step": 2, "tokens": -1}', "invalid counter tokens"),
    "huge": (b'{"step": 2, "tokens": 1' + b"0" * 400 + b"}", "invalid counter tokens"),
    "endless": (b'{"step": 2, "tokens": 1' + b"0" * 5000 + b"}", "not valid counters"),
    "not-finite": (b'{"step": 2, "seconds": NaN}', "not valid counters: NaN is not a finite number"),
    "hex-too-large": (b'{"step": 2, "best": "0x1p99999"}', "invalid counter best"),
    "offset-in-parts": (b'{"step": 2, "metrics.jsonl": 1.5}', "invalid counter metrics.jsonl"),
    "later-step": (b'{"step": 7}', "step is 7, not 2"),
    "earlier-step": (b'{"step": 1}', "step is 1, not 2"),
    "list": (b"[]", "not valid counters"),
    "nested": (b"[" * 100_000, "not valid counters"),
}
BAD_MOMENTS: dict[str, tuple[dict[str, torch.Tensor], str]] = {
    "another-type": (
        {"step": torch.tensor(1), "w.exp_avg": torch.zeros(500, 3, dtype=torch.bfloat16)},
        "is [500, 3] bfloat16, not",
    ),
    "another-shape": ({"step": torch.tensor(1), "w.exp_avg": torch.zeros(4, 3)}, "is [4, 3] float32, not"),
    "other-names": (
        {"step": torch.tensor(1), "v.exp_avg": torch.zeros(500, 3)},
        "w.exp_avg is missing, v.exp_avg is not expected",
    ),
    "not-finite": (
        {"step": torch.tensor(1), "w.exp_avg": torch.full((500, 3), float("nan"))},
        "w.exp_avg contains values that are not finite",
    ),
}
HARMED = {f"C6-counters-{name}": ({COUNTERS: data}, words) for name, (data, words) in BAD_COUNTERS.items()}
HARMED |= {
    f"C17-moments-{name}": ({OPTIMIZER: b"".join(Serialized(moments))}, words)
    for name, (moments, words) in BAD_MOMENTS.items()
}
HARMED["C17-moments-pickled"] = ({OPTIMIZER: b"\x80\x04\x95 a pickle of some length"}, "not a safetensors file")
HARMED["C6-state-no-tensors"] = ({STATE: struct.pack("<Q", 1 << 62)}, "not a safetensors file")


@pytest.mark.parametrize(("harm", "words"), HARMED.values(), ids=HARMED)
def test_a_checkpoint_whose_parts_do_not_fit_is_refused(tmp_path: Path, harm: dict[str, bytes], words: str) -> None:
    run = live(tmp_path / "run", until=1)
    parts = {name: (run.checkpoints.path(1) / name).read_bytes() for name in (MODEL, OPTIMIZER, STATE, COUNTERS)}
    run.checkpoints.save(2, parts | harm, None)
    with open_run(RunLocation(run.folder), ONE) as again_opened, pytest.raises(RunFault) as told:
        again_opened.resume(fail_on_warning, ExpectedTensors(specs(kept_at(1).model), specs(kept_at(1).optimizer)))
    assert words in told.value.message


def test_c17_moments_come_back_in_their_own_type_and_a_narrower_one_is_refused() -> None:
    optimizer = adamw.Settings().build({"w": Parameter(torch.zeros(3, 2))})
    moments = optimizer.state_tensors()
    optimizer.load(moments)
    assert {str(tensor.dtype) for name, tensor in optimizer.state_tensors().items() if name != "step"} == {
        "torch.float32"
    }
    with pytest.raises(ValueError, match=r"torch\.bfloat16 \[3, 2\] must be torch\.float32"):
        optimizer.load({**moments, "w.exp_avg": moments["w.exp_avg"].bfloat16()})


def test_c6_what_fails_while_a_checkpoint_is_taken_over_is_its_fault(tmp_path: Path) -> None:
    live(tmp_path / "run", until=1)
    with open_run(RunLocation(tmp_path / "run"), ONE) as run:
        saved = run.resume(fail_on_warning)
        assert saved is not None
        with (
            pytest.raises(RunFault, match=r"step-00000001: does not match this run: 'good_steps' is missing"),
            saved.restoring(),
        ):
            saved.counters["good_steps"]


def counted(folder: Path, **fields: object) -> None:
    """Other counters in the newest checkpoint, with the hash that its manifest has of them."""
    step = folder / "checkpoints" / "step-00000004"
    change(step / COUNTERS, **fields)
    sealed(step, COUNTERS)


def sealed(step: Path, name: str) -> None:
    """A checkpoint whose manifest has the hash of a file as it is now."""
    data = (step / name).read_bytes()
    entry(step, files={**files_of(step), name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}})


CONTINUED: dict[str, tuple[Callable[[Path], object], str]] = {
    **{
        f"C6-{name}-is-text": (partial(counted, **{name: "a"}), f"{name} is not a number")
        for name in ("steps", "worse")
    },
    **{
        f"C6-{name}-is-text": (partial(counted, **{name: "a"}), f"invalid counter {name}")
        for name in ("tokens", "skips")
    },
    "C5-rows-a-pass": (
        lambda folder: change(folder / "run.json", auto={"micro_batch_size": 1 << 32}),
        "auto.micro_batch_size 4294967296 does not divide train.batch_size",
    ),
    "C5-extension-after-the-end": (
        lambda folder: change(folder / "run.json", extensions=[[7, 3]]),
        "run.json: extensions: no part of the run ended at step 7",
    ),
    "C5-extensions-out-of-order": (
        lambda folder: change(folder / "run.json", extensions=[[5, 3], [4, 9]]),
        "run.json: extensions: no part of the run ended at step 4",
    ),
    "C5-half-a-pair-in-an-error": (
        lambda folder: entry(folder / "checkpoints" / "step-00000004", run="\ud800"),
        "belongs to another run (\\ud800",
    ),
}


@pytest.mark.parametrize(("harm", "words"), CONTINUED.values(), ids=CONTINUED)
def test_a_run_that_cannot_be_continued_so_is_refused(cut: Path, harm: Callable[[Path], object], words: str) -> None:
    harm(cut)
    done = again(cut)
    assert done.exit_code == 5, done.stderr
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_c5_half_a_pair_in_run_json_is_written_back_as_it_was(cut: Path) -> None:
    change(cut / "run.json", recipe="\ud800", command=["\udcff"])
    done = again(cut)
    assert done.exit_code == 0, done.stderr
    assert json.loads((cut / "run.json").read_text())["recipe"] == "\ud800"


STREAM = (
    *("train.stream=true", "model.attention={kind: window, window: 8}", "model.positions.kind=rotary"),
    *("data.pack=concat", "train.micro_batch_size=4", "train.batch_size=8"),
)


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream with checkpoints of steps 2, 4 and 6; to be read only."""
    return trained(tmp_path_factory.mktemp("streamed") / "run", *RECIPE, *STREAM)


def narrowed(state: dict[str, torch.Tensor]) -> None:
    state["0.layers.0.self_attn.k"] = state["0.layers.0.self_attn.k"][:, :, :-1].contiguous()


def of_fewer_rows(state: dict[str, torch.Tensor]) -> None:
    state.update({name: tensor[:1].contiguous() for name, tensor in state.items() if tensor.dim()})


def poisoned(state: dict[str, torch.Tensor]) -> None:
    state["1.layers.1.self_attn.v"][0, 0, 0, 0] = torch.inf


STATES: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]] = {
    "C6-state-empty": (dict.clear, "the stream state after step 4 is missing"),
    "C6-state-flat": (
        lambda state: (state.clear(), state.update({"0": torch.ones(3), "1": torch.ones(3)})),
        "does not fit the model",
    ),
    "C6-state-both": (lambda state: state.update({"0.layers": torch.ones(3)}), "does not match this run"),
    "C6-state-missing": (
        lambda state: state.pop("1.layers.0.self_attn.k"),
        "the stream state of micro-batch 2 does not fit the model",
    ),
    "C6-state-no-layers": (
        lambda state: [state.pop(name) for name in [*state] if "layers" in name],
        "does not fit the model",
    ),
    "C6-state-narrow": (narrowed, "the stream state of micro-batch 1 does not fit the model"),
    "C6-state-few-rows": (of_fewer_rows, "does not fit the model"),
    "C6-state-one-micro-batch": (
        lambda state: [state.pop(name) for name in [*state] if name.startswith("1.")],
        "saved in micro-batches of 8 rows",
    ),
    "C6-state-not-finite": (poisoned, "1.layers.1.self_attn.v contains values that are not finite"),
}


@pytest.mark.parametrize(("harm", "words"), STATES.values(), ids=STATES)
def test_a_stream_that_remembers_what_cannot_be_is_refused(
    streamed: Path, tmp_path: Path, harm: Callable[[dict[str, torch.Tensor]], object], words: str
) -> None:
    run = Path(shutil.copytree(streamed, tmp_path / "run"))
    shutil.rmtree(run / "checkpoints" / "step-00000006")
    change(run / "run.json", state="stopped")
    step = run / "checkpoints" / "step-00000004"
    state = load_file(step / STATE)
    harm(state)
    (step / STATE).write_bytes(b"".join(Serialized(state)))
    sealed(step, STATE)
    refused(again(run, *STREAM), words)


# The process: P7, P8, P12


def test_p7_a_complete_run_is_said_to_be_and_nothing_is_written_again(copy: Path) -> None:
    before = content(copy)
    done = again(copy)
    assert done.exit_code == 0
    assert "already complete: " in done.stderr
    assert content(copy) == before
    shutil.rmtree(copy / "checkpoints")  # a person may want the space
    assert again(copy).exit_code == 0


@pytest.mark.parametrize("name", ["thesis.tex", ".tmp-thesis", "run.json"], ids=lambda name: f"P8-{name}")
def test_a_folder_of_somebody_else_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / name).write_text("{}")
    refused(
        again(folder),
        (
            "is damaged: the key 'format' is missing"
            if name == "run.json"
            else "is not empty and not a minitf run folder; choose another folder with -d"
        ),
    )
    assert os.listdir(folder) == [name]
    assert (folder / name).read_text() == "{}"


def test_p8_a_refused_start_leaves_an_empty_folder_as_it_stood(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o700)
    before = folder.stat()
    with pytest.raises(RunFault), open_run(RunLocation(folder), ONE):
        raise RunFault("no")
    assert (os.listdir(folder), folder.stat().st_ino, folder.stat().st_mode) == ([], before.st_ino, before.st_mode)


def test_p8_a_folder_in_use_is_not_looked_into(tmp_path: Path) -> None:
    with open_run(RunLocation(tmp_path / "run"), ONE) as run:
        (run.folder / ".tmp-loss.svg").symlink_to("elsewhere")  # what its process may just be writing
        with pytest.raises(RunFault, match=f"is in use by process {os.getpid()} on"):
            open_run(RunLocation(run.folder), ONE)


def test_p8_of_two_new_starts_at_once_the_second_continues_what_the_first_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = location.try_lock

    def later(folder: Path) -> int | None:
        monkeypatch.setattr(location, "try_lock", hold)
        live(folder, until=1)
        return hold(folder)

    monkeypatch.setattr(location, "try_lock", later)
    with open_run(RunLocation(tmp_path / "run"), ONE) as run:
        assert run.status == "continued"
        start_run(run, ONE)
        saved = run.resume(fail_on_warning)
        assert saved is not None
        assert saved.step == 1


@pytest.mark.parametrize("held_first", [False, True], ids=["P8-gone-before", "P8-gone-behind"])
def test_a_start_survives_another_that_is_refused_and_takes_the_folder_away(
    held_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = location.try_lock

    def too_late(folder: Path) -> int | None:
        monkeypatch.setattr(location, "try_lock", hold)
        lock = hold(folder) if held_first else None
        folder.rmdir()
        return lock if held_first else hold(folder)

    monkeypatch.setattr(location, "try_lock", too_late)
    with open_run(RunLocation(tmp_path / "run"), ONE) as run:
        assert run.status == "new"
        with pytest.raises(RunFault, match="is in use"):
            open_run(RunLocation(tmp_path / "run"), ONE)
        raised = RunFault("no")
        run.__exit__(RunFault, raised, None)
    assert os.listdir(tmp_path) == []


def test_p8_a_start_that_the_disk_ends_lets_the_folder_go(tmp_path: Path) -> None:
    def fail(operation: Operation) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(operation.arguments[0]))

    with pytest.raises(StorageFault):
        open_run(RunLocation(tmp_path / "run"), ONE, disk=FaultyDisk(4, fail))
    live(tmp_path / "run")


def test_p12_what_metrics_have_after_the_checkpoint_is_written_again(cut: Path, whole: Path) -> None:
    """Whatever it is: a later line, noise, a line that is torn."""
    tail = b'{"step": 5, "loss": 1.0}\n' + b"\xff\x00" * 50 + b'\n{"step": 5, "lo'
    offset = json.loads((cut / "checkpoints" / "step-00000004" / COUNTERS).read_text())["metrics.jsonl"]
    data = (cut / "metrics.jsonl").read_bytes()
    (cut / "metrics.jsonl").write_bytes(data[:offset] + tail)
    assert again(cut).exit_code == 0
    assert (cut / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert (cut / MODEL).read_bytes() == (whole / MODEL).read_bytes()


def test_nobody_needs_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert live(tmp_path / "run").manifest.state == "done"


def test_where_the_file_system_has_no_locks_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr("fcntl.flock", no_locks)
    warned: list[str] = []
    with open_run(RunLocation(tmp_path / "run"), ONE) as run:
        run.resume(warned.append)
    assert warned == [
        f"{run.folder}: the file system does not support locks; make sure that no other process trains in this folder"
    ]

"""`minitf runs rm`: a run is whole or gone, whatever is named beside it and whenever the command ends."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import content, minitf, refused
from test_cli_prompt_loop import Typist

from mini_tf.cli.app import main
from mini_tf.run import finding, manifest
from mini_tf.run.disk import Disk
from mini_tf.run.manifest import Manifest
from mini_tf.run.removing import REMOVED, remove
from mini_tf.system.errors import StorageFault


@pytest.fixture(autouse=True)
def _among_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        written(name)


def written(name: str, **facts: Any) -> Path:
    """A run folder in outputs, with a file below it."""
    folder = Path("outputs", name)
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "weights").write_bytes(b"x" * 2_500_000)
    manifest.write(folder, Manifest(recipe="tiny", state="done", **facts), Disk())
    return folder


def runs() -> list[str]:
    return [folder.name for folder in finding.list_runs(Path("outputs"))]


def answered(answer: str, *arguments: str) -> int:
    """The exit code of `runs rm` when this is typed at a terminal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", Typist(answer))
        with pytest.raises(SystemExit) as leaving:
            main(["runs", "rm", *arguments])
    return int(str(leaving.value.code))


@pytest.mark.parametrize("length", [248, 255])
def test_runs_with_the_longest_names_are_removed_too(length: int) -> None:
    names = [letter * length for letter in "ab"]
    for name in names:
        written(name)
    done = minitf("runs", "rm", *names, "--yes")
    assert done.exit_code == 0, done.stderr
    assert sorted(os.listdir("outputs")) == ["first", "second"]


def test_runs_are_removed_by_folder_by_name_and_as_last() -> None:
    written("third")
    os.utime("outputs/second/run.json", (9e9, 9e9))
    done = minitf("runs", "rm", "last", "outputs/second", "first", "--yes", "--json")
    assert done.exit_code == 0, done.stderr
    assert sorted(os.listdir("outputs")) == ["third"]
    result = json.loads(done.stdout)["result"]
    assert [Path(one["folder"]).name for one in result] == ["second", "first"]
    assert all(one["bytes"] > 2_500_000 for one in result)
    assert f"{Path('outputs/first').absolute()}: done, 2.5 MB" in done.stderr
    assert done.stderr.endswith("removed: second, first\n")


@pytest.mark.parametrize(
    ("answer", "left"), [("y\n", ["second"]), ("YES\n", ["second"]), ("n\n", None), ("\n", None), ("", None)]
)
def test_a_terminal_is_asked_and_only_yes_removes(
    answer: str, left: list[str] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(answer, "first") == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "remove first? [y/N] " in said.err
    assert runs() == (left or ["first", "second"])
    assert ("nothing was removed" in said.err) == (left is None)


def test_without_a_terminal_and_without_yes_nothing_is_removed() -> None:
    refused(minitf("runs", "rm", "first", "-q"), "stdin is no terminal; --yes removes without asking", exit_code=2)
    assert runs() == ["first", "second"]


def test_what_is_no_run_is_refused_and_the_runs_beside_it_stay() -> None:
    Path("outputs/notes").mkdir()
    os.symlink("second", "outputs/link")
    shutil.copytree("outputs/first", "outputs/second/mine")
    before = content(Path("outputs"))
    for named, words in {
        "notes": "is not a run folder",
        "link": f"outputs/link is a link to {Path('outputs/second').resolve()}; name that folder",
        "nowhere": "no such run: nowhere",
        "second": "outputs/second holds another run, ",
    }.items():
        refused(minitf("runs", "rm", "first", named, "--yes"), words, exit_code=5)
    assert content(Path("outputs")) == before


def test_a_set_is_removed_as_a_whole_and_none_of_its_runs_alone() -> None:
    for member in ("set", "set/fold-1", "set/fold-1/seed-1", "set/fold-1/seed-2", "set/fold-2"):
        written(member)
    refused(
        minitf("runs", "rm", "outputs/set/fold-1/seed-2", "--yes"),
        f"is a part of the run {Path('outputs/set/fold-1').absolute()}; `minitf runs rm ",
        exit_code=5,
    )
    assert minitf("runs", "rm", "set", "--yes").exit_code == 0
    assert sorted(os.listdir("outputs")) == ["first", "second"]


@pytest.mark.parametrize("member", ["", "seed-1"])
def test_a_run_in_progress_is_refused_and_nothing_is_removed(member: str) -> None:
    written("set/seed-1")
    written("set/../set/x").rename("outputs/x")
    manifest.write(Path("outputs/set"), Manifest(pid=77), Disk())
    manifest.write(Path("outputs/set/seed-1"), Manifest(pid=77), Disk())
    lock = finding.try_lock(Path("outputs/set", member))
    assert lock is not None
    refused(
        minitf("runs", "rm", "first", "set", "--yes"), "is in use by process 77; wait until it ends, or ", exit_code=5
    )
    assert runs() == ["first", "second", "set", "x"]
    os.close(lock)
    assert minitf("runs", "rm", "first", "set", "--yes").exit_code == 0
    assert runs() == ["second", "x"]


def test_a_run_that_is_done_is_not_in_use_by_the_process_that_trained_it() -> None:
    written("done", pid=77)
    lock = finding.try_lock(Path("outputs/done"))
    assert lock is not None
    refused(minitf("runs", "rm", "done", "--yes"), "is in use by another process; wait until it ends", exit_code=5)
    os.close(lock)


def test_a_run_that_is_named_by_two_paths_is_removed_once() -> None:
    Path("link").symlink_to("outputs")
    named = ["first", "outputs/../outputs/first", "link/first", "outputs/first/checkpoints/.."]
    done = minitf("runs", "rm", *named, "--yes", "--json")
    assert done.exit_code == 0, done.stderr
    assert [one["folder"] for one in json.loads(done.stdout)["result"]] == [str(Path("outputs/first").resolve())]
    assert runs() == ["second"]


def test_runs_that_were_initialized_from_it_are_named() -> None:
    written("bert", model={"step": 1, "score": None, "sha256": "a" * 64})
    written("task", hashes={"init": "a" * 64})
    written("other", hashes={"init": "b" * 64})
    Path("outputs/second/run.json").write_text("{")
    done = minitf("runs", "rm", "bert", "--yes")
    assert "initialized from it: task\n" in done.stderr
    assert "initialized from" not in minitf("runs", "rm", "other", "--yes").stderr


class Fails(Disk):
    """A disk on which an operation on a path fails."""

    def __init__(self, operation: str, name: str) -> None:
        self.operation, self.name = operation, name

    def rename(self, old: Path, new: Path) -> None:
        self._fail("rename", old)
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self._fail("remove", path)
        super().remove(path)

    def _fail(self, operation: str, path: Path) -> None:
        if (operation, path.name) == (self.operation, self.name):
            raise PermissionError(13, "Permission denied", str(path))


def test_where_one_cannot_be_removed_the_others_stay_whole() -> None:
    before = content(Path("outputs"))
    folders = [Path("outputs/first").absolute(), Path("outputs/second").absolute()]
    with pytest.raises(StorageFault, match=r"removing .*second failed: Permission denied .*; no run was removed"):
        remove(folders, Fails("rename", "second"))
    assert content(Path("outputs")) == before


def test_what_a_killed_removal_left_is_no_run_and_deleted_by_the_next() -> None:
    with pytest.raises(StorageFault, match="its rest is in "):
        remove([Path("outputs/first").absolute()], Fails("remove", f"{REMOVED}first"))
    assert runs() == ["second"]
    assert Path(f"outputs/{REMOVED}first/checkpoints/weights").exists()
    assert minitf("runs", "rm", "second", "--yes").exit_code == 0
    assert os.listdir("outputs") == []

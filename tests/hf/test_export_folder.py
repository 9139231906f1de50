"""An exported folder is whole or not there, whether its place was empty or not there."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mini_tf.hf.formats import new_folder
from mini_tf.system.errors import RunFault

FILES = ["a", "b", "c"]


def write(folder: Path) -> None:
    with new_folder(folder) as temporary:
        for name in FILES:
            (temporary / name).write_text(name)


@pytest.mark.parametrize("exists", [False, True])
def test_a_process_killed_at_any_moment_leaves_all_files_or_none(
    exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, left = Path.rename, set[tuple[str, ...]]()
    for n_renames in range(3):
        out = tmp_path / f"out{n_renames}"
        if exists:
            out.mkdir()
        if (pid := os.fork()) == 0:
            done = iter(range(n_renames))

            def killed(path: Path, target: Path, done: Iterator[int] = done) -> Path:
                if next(done, None) is None:
                    os._exit(9)
                return rename(path, target)

            monkeypatch.setattr(Path, "rename", killed)
            write(out)
            os._exit(0)
        os.waitpid(pid, 0)
        left.add(tuple(sorted(path.name for path in out.iterdir())) if out.exists() else ())
    assert left == {(), tuple(FILES)}


def test_a_folder_that_cannot_be_replaced_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunFault, match="is the working directory, which a new folder cannot replace"):
        write(Path())
    write(tmp_path / ("n" * 255))
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    write(Path("link"))
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == FILES
    assert (tmp_path / "link").is_symlink()

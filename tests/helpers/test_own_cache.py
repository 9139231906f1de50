"""Tests never read what another version of the code has written, and leave no old cache behind."""

import os
import shutil
from pathlib import Path

from own_cache import SOURCES, claim, fingerprint


def test_another_source_or_another_name_is_another_version(tmp_path: Path) -> None:
    shutil.copytree(SOURCES / "data", tmp_path / "data", ignore=shutil.ignore_patterns("__pycache__"))
    before = fingerprint(tmp_path / "data")
    assert fingerprint(SOURCES / "data") == before
    with (tmp_path / "data" / "store.py").open("a") as file:
        file.write("\n")
    changed = fingerprint(tmp_path / "data")
    (tmp_path / "data" / "store.py").rename(tmp_path / "data" / "stores.py")
    assert len({before, changed, fingerprint(tmp_path / "data")}) == 3


def test_a_cache_stays_while_it_is_in_use_and_goes_with_the_next_version(tmp_path: Path) -> None:
    folder, lock = claim(tmp_path, "one")
    (folder / "file").touch()
    again, second = claim(tmp_path, "one")
    _, third = claim(tmp_path, "two")
    assert (again, (folder / "file").exists()) == (folder, True)
    os.close(lock)
    os.close(second)
    (tmp_path / f"minitf-tests-{os.getuid() + 1}-x").mkdir()
    (tmp_path / f"minitf-tests-{os.getuid()}-link").symlink_to(tmp_path)
    newest, fourth = claim(tmp_path, "three")
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {f"minitf-tests-{os.getuid()}-{key}" for key in ("two", "three", "link")} | {
        f"minitf-tests-{os.getuid() + 1}-x"
    }
    assert newest.stat().st_mode & 0o077 == 0
    os.close(third)
    os.close(fourth)


def test_a_name_that_somebody_else_has_taken_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / f"minitf-tests-{os.getuid()}-one").symlink_to(tmp_path)
    folder, lock = claim(tmp_path, "one")
    os.close(lock)
    assert (folder.parent, folder.is_symlink(), [*folder.iterdir()]) == (tmp_path, False, [])
    assert (tmp_path / f"minitf-tests-{os.getuid()}-one").is_symlink()

"""Adds a folder of kinds without installing it, for tests of its kinds."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path
from tempfile import TemporaryDirectory

from mini_tf.recipe import kind_folders


@contextmanager
def kinds_in(folder: Path, version: str = "0") -> Iterator[None]:
    """Within this context a folder of packages of kinds (`folder/attention/mean.py`) is installed, as a package of its
    name.
    """
    with TemporaryDirectory() as place:
        metadata = Path(place, f"{folder.name}-{version}.dist-info")
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {folder.name}\nVersion: {version}\n")
        (metadata / "entry_points.txt").write_text(f"[{kind_folders.GROUP}]\nkinds = {folder.name}\n")
        with installed_in(Path(place), folder.absolute().parent):
            yield


@contextmanager
def installed_in(*folders: Path) -> Iterator[None]:
    """Within this context the packages that lie in these folders are installed."""
    before, loaded = [*sys.path], {*sys.modules}
    sys.path += map(str, folders)
    _look_again()
    try:
        yield
    finally:
        packages = {folder.module.partition(".")[0] for folder in kind_folders.added_folders()}
        for name in {*sys.modules} - loaded:
            if name.partition(".")[0] in packages:
                del sys.modules[name]
        sys.path[:] = before
        _look_again()


def _look_again() -> None:
    invalidate_caches()
    kind_folders.clear_caches()

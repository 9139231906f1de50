"""The cache of the tests: one for each version of the code, so that none reads what another has written."""

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "mini_tf"
WRITERS = ("torch", "tokenizers", "safetensors", "numpy", "matplotlib")
"""Packages whose output is in the cache."""


def fingerprint(sources: Path = SOURCES) -> str:
    """A hash of the sources and of the versions of all that writes into the cache."""
    installed = sorted({f"{one.name} {one.version}" for one in distributions() if one.name in WRITERS})
    sha = hashlib.sha256(repr((sys.version, installed)).encode())
    for file in sorted(sources.rglob("*.py")):
        sha.update(f"\0{file.relative_to(sources)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return sha.hexdigest()[:16]


def claim(place: Path, key: str) -> tuple[Path, int]:
    """This user's folder for `key` in `place`, and the descriptor whose shared lock keeps it from being removed.

    Those of other keys go, unless a process still has them locked.
    """
    prefix = f"minitf-tests-{os.getuid()}-"
    folder = place / f"{prefix}{key}"
    while (lock := _locked(folder, fcntl.LOCK_SH)) is None:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if (
            folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid != os.getuid()
        ):  # anybody may take a name in /tmp
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    for other in place.glob(f"{prefix}*"):
        if other != folder and (unused := _locked(other, fcntl.LOCK_EX | fcntl.LOCK_NB)) is not None:
            shutil.rmtree(other, ignore_errors=True)
            os.close(unused)
    return folder, lock


def _locked(folder: Path, how: int) -> int | None:
    """A descriptor of this user's folder, locked; None where there is none, or where another process has it locked
    otherwise.
    """
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, how)
        if os.path.samestat(os.fstat(lock), os.lstat(folder)) and os.fstat(lock).st_uid == os.getuid():
            return lock
    except OSError:  # it is locked, or was removed in between
        pass
    os.close(lock)
    return None

"""SHA-256 of files, each read once a process for as long as it stays the same file of the same size and time.

A checkpoint is looked at by several that follow each other: is it sound, what made it, is it the best, is it published.
"""

import hashlib
import os
from pathlib import Path

from mini_tf.system.plain_file import open_plain

_CHUNK = 1 << 20


class Hashes:
    """In hex digits, by path."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, ...], str]] = {}

    def of(self, path: Path, size: int | None = None) -> str:
        """OSError where it is no plain file, or cannot be read; ValueError, before that, where it is not of so many bytes."""
        with open_plain(path) as file:
            stamp, digest = _stamp(os.fstat(file.fileno())), hashlib.sha256()
            if size not in (None, stamp[0]):
                raise ValueError(f"{stamp[0]} bytes, not {size}")
            known = self._known.get(path)
            if known is None or known[0] != stamp:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
                known = self._known[path] = (stamp, digest.hexdigest())
        return known[1]

    def note(self, path: Path, sha256: str) -> None:
        """What this process itself has just written there."""
        self._known[path] = (_stamp(path.stat()), sha256)

    def forget(self, folder: Path) -> None:
        """From now on the files directly in it are read again."""
        self._known = {path: known for path, known in self._known.items() if path.parent != folder}


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_size, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns

"""SHA-256 of files, cached in this process until a file's size, inode or times change."""

import hashlib
import os
from pathlib import Path

from mini_tf.system.plain_file import open_plain

_CHUNK = 1 << 20


class FileHashes:
    """SHA-256 in hex digits by path."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, ...], str]] = {}

    def sha256(self, path: Path, size: int | None = None) -> str:
        """OSError if it is not a readable plain file; ValueError, before reading, if it does not have `size` bytes."""
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

    def store(self, path: Path, sha256: str) -> None:
        """Set the hash of a file that this process has just written."""
        self._known[path] = (_stamp(path.stat()), sha256)

    def drop(self, folder: Path) -> None:
        """Drop the hashes of the files directly in a folder, so that they are read again."""
        self._known = {path: known for path, known in self._known.items() if path.parent != folder}


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_size, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns

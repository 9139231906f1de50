"""SHA-256 of files: of those that are read, cached in this process until their size, inode or times change; and of the
chunks of those that are written.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from mini_tf.system.plain_file import open_plain

_CHUNK = 1 << 20


class HashedChunks:
    """Chunks of a file, and the SHA-256 of those that were taken so far."""

    def __init__(self, chunks: Iterable[bytes | memoryview]) -> None:
        self._chunks, self._digest = chunks, hashlib.sha256()

    def __iter__(self) -> Iterator[bytes | memoryview]:
        return map(self._take, self._chunks)  # a loop would keep a chunk while the next one is made

    def _take(self, chunk: bytes | memoryview) -> bytes | memoryview:
        self._digest.update(chunk)
        return chunk

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def sha256_of(chunks: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


class FileHashes:
    """SHA-256 in hex digits by path."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, ...], str]] = {}

    def sha256(self, path: Path, size: int | None = None) -> str:
        """OSError if it is not a readable plain file; ValueError, before reading, if it does not have `size` bytes."""
        with open_plain(path) as file:
            stamp = _stamp(os.fstat(file.fileno()))
            if size not in (None, stamp[0]):
                raise ValueError(f"{stamp[0]} bytes, not {size}")
            known = self._known.get(path)
            if known is None or known[0] != stamp:
                known = self._known[path] = (stamp, sha256_of(iter(partial(file.read, _CHUNK), b"")))
        return known[1]

    def store(self, path: Path, sha256: str) -> None:
        """Set the hash of a file that this process has just written."""
        self._known[path] = (_stamp(path.stat()), sha256)

    def drop(self, folder: Path) -> None:
        """Drop the hashes of the files directly in a folder, so that they are read again."""
        self._known = {path: known for path, known in self._known.items() if path.parent != folder}


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_size, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns

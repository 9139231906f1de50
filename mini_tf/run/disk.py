"""File operations of a run folder, and SHA-256 of its files; tests replace `Disk` by one that fails.

Run folders are untrusted: no operation follows a link, blocks on a pipe or writes to a device. Hashes of files that are
read are cached in this process until their size, inode or times change.
"""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

from mini_tf.system.errors import RunFault, StorageFault
from mini_tf.system.safe_files import check_plain, file_type, open_plain, read_blocks

TEMPORARY = ".tmp-"
"""Prefix of unfinished files: never read, removed by the next process that locks the folder."""

LONGEST_NAME = 255
"""Bytes of the name of a file, on the file systems of Linux and macOS."""

_FULL = "free some space; the same command continues"
_HINTS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: "raise the file size limit (ulimit -f); the same command continues",
    errno.EIO: "check the disk; the same command continues",
    errno.EACCES: "make the folder writable; the same command continues",
    errno.EPERM: "make the folder writable; the same command continues",
    errno.EROFS: "make the disk writable; the same command continues",
}


Content = bytes | Iterable[bytes | memoryview]
"""Of a file: whole, or in chunks, so that a large one is never whole in memory."""


def chunks(content: Content) -> Iterable[bytes | memoryview]:
    return [content] if isinstance(content, bytes) else content


class Disk:
    """The real disk. Every operation is complete when it returns, or raises OSError."""

    def mkdir(self, folder: Path) -> None:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if folder.is_symlink():
            raise OSError(errno.ELOOP, "it is a link, not a folder", str(folder))

    def write(self, path: Path, data: Content) -> None:
        """Write a new file and fsync it; its name may be lost in a power cut until `sync(path.parent)`."""
        with suppress(FileNotFoundError):
            os.unlink(path)
        with _open_for_writing(path, os.O_CREAT | os.O_EXCL) as file:
            file.writelines(chunks(data))
            file.flush()
            os.fsync(file.fileno())

    def append(self, path: Path, data: bytes) -> None:
        """Append to a file, created if missing; the data may be lost in a power cut until `sync(path)`."""
        with _open_for_writing(path, os.O_CREAT | os.O_APPEND) as file:
            file.write(data)

    def truncate(self, path: Path, size: int) -> None:
        """Truncate a file to its first `size` bytes."""
        with _open_for_writing(path) as file:
            file.truncate(size)

    def sync(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        """Remove a file or a folder with its content; links are not followed."""
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)

    def free(self, folder: Path) -> int:
        """Free bytes that this process may use."""
        return shutil.disk_usage(folder).free


@contextmanager
def _open_for_writing(path: Path, flags: int = 0) -> Iterator[BinaryIO]:
    """Open a plain file for writing; a new one has mode 0644 minus umask. Every OSError has the file name."""
    descriptor = check_plain(
        os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o644), path
    )
    try:
        with os.fdopen(descriptor, "ab" if flags & os.O_APPEND else "wb") as file:
            yield file
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def temporary_beside(path: Path, prefix: str = TEMPORARY) -> Path:
    """The temporary path of `path`, always the same; a hash stands for a name to which no prefix can be added."""
    name = prefix + path.name
    if len(os.fsencode(name)) > LONGEST_NAME:
        name = prefix + hashlib.sha256(os.fsencode(path.name)).hexdigest()
    return path.with_name(name)


@contextmanager
def atomic_replace(disk: Disk, path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which is renamed to `path` at the end of the block.

    After a crash `path` is either the old or the complete new file or folder. On an error the temporary one is removed.
    """
    temporary = temporary_beside(path)
    try:
        yield temporary
        disk.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            disk.remove(temporary)
        raise
    disk.sync(path.parent)


def replace(disk: Disk, path: Path, data: Content) -> None:
    """Write a file atomically, replacing an existing one."""
    with atomic_replace(disk, path) as temporary:
        disk.write(temporary, data)


def break_hard_links(disk: Disk, *paths: Path) -> None:
    """Replace files with other names (of a backup, say) by copies, before anything is appended to them."""
    for path in paths:
        if path.exists() and path.stat().st_nlink > 1:
            replace(disk, path, read_blocks(path))


def make_folder(disk: Disk, folder: Path) -> None:
    """Create a folder and its missing parents, each with an fsync of its parent."""
    for path in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        disk.mkdir(path)
        disk.sync(path.parent)


def remove_temporary(disk: Disk, folder: Path, prefixes: tuple[str, ...] = (TEMPORARY,)) -> None:
    """Remove entries with these prefixes, left by an interrupted process, from a folder that need not exist."""
    for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
        if name.startswith(prefixes):
            disk.remove(folder / name)


@contextmanager
def storage_errors(operation: str, state: str = "") -> Iterator[None]:
    """Convert OSError to StorageFault: "saving step 40 failed: No space left on device (path); {state}"."""
    try:
        yield
    except OSError as error:
        path = f" ({error.filename})" if error.filename else ""
        rest = f"; {state}" if state else ""
        hint = _HINTS.get(error.errno or 0, "correct this; the same command continues")
        raise StorageFault(f"{operation} failed: {error.strerror or error}{path}{rest}", hint=hint) from error


def check_plain_files(folder: Path) -> None:
    """RunFault unless a run folder and all its entries are plain files or folders.

    A link in place of metrics.jsonl would change another file of the user; a pipe would block the process.
    """
    entries = (Path(parent, name) for parent, folders, files in os.walk(folder) for name in sorted([*folders, *files]))
    for path in (folder, *entries):
        mode = path.lstat().st_mode
        type_ = "a link" if stat.S_ISLNK(mode) else file_type(mode)
        if type_ not in (None, "a folder"):
            hint = "remove it, or choose another folder with -d"
            raise RunFault.about(path, f"is {type_}; a run folder may contain only plain files and folders", hint)


_CHUNK = 1 << 20


class FileChunks(Protocol):
    """The content of a file in chunks, such as `tensors.Serialized`; `len` is its size in bytes."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[bytes | memoryview]: ...


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

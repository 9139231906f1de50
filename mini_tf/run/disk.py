"""The few file operations a run folder is written with; tests hand in one that dies, or fails, at any of them.

None of them goes through a link, waits on a pipe or writes to a device: a run folder may come from a stranger.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mini_tf.system.errors import RunFault, StorageFault
from mini_tf.system.plain_file import kind_of, only_plain

TEMPORARY = ".tmp-"
"""Prefix of what is not finished yet: swept by the next process that holds the folder, never read."""

_FULL = "free some space; the same command continues"
_HINTS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: "raise the largest size of a file (ulimit -f); the same command continues",
    errno.EIO: "look after the disk; the same command continues",
    errno.EACCES: "make the folder writable; the same command continues",
    errno.EPERM: "make the folder writable; the same command continues",
    errno.EROFS: "make the disk writable; the same command continues",
}


class Disk:
    """The real disk. Every operation is either done when it returns, or raises OSError."""

    def mkdir(self, folder: Path) -> None:
        """A folder, and those above it; one that is there already is left as it is."""
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if folder.is_symlink():
            raise OSError(errno.ELOOP, "it is a link, not a folder", str(folder))

    def write(self, path: Path, data: bytes) -> None:
        """A whole new file that survives a power cut (fsync), though its name may not until `sync(path.parent)`."""
        with suppress(FileNotFoundError):
            os.unlink(path)
        with _opened(path, os.O_CREAT | os.O_EXCL) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def append(self, path: Path, data: bytes) -> None:
        """Add to the end of a file, which may not exist yet; it may be lost in a power cut until `sync(path)`."""
        with _opened(path, os.O_CREAT | os.O_APPEND) as file:
            file.write(data)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file to its first `size` bytes."""
        with _opened(path) as file:
            file.truncate(size)

    def sync(self, path: Path) -> None:
        """Make a file's content, or the names in a folder, survive a power cut."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder and all in it; links are removed, never followed."""
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)

    def free(self, folder: Path) -> int:
        """Bytes this process may still write."""
        return shutil.disk_usage(folder).free


@contextmanager
def _opened(path: Path, flags: int = 0) -> Iterator[BinaryIO]:
    """A plain file for writing, created for its owner to write and all to read (minus umask); its name is in every OSError."""
    descriptor = only_plain(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o644), path)
    try:
        with os.fdopen(descriptor, "ab" if flags & os.O_APPEND else "wb") as file:
            yield file
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def placing(disk: Disk, path: Path) -> Iterator[Path]:
    """Where to write the file or folder that shall stand at `path`: beside it, and renamed when the block is left.

    A reader, or a crash, meets what stood there before or all of the new, never a part; nothing is left of what fails.
    """
    temporary = path.with_name(TEMPORARY + path.name)
    try:
        yield temporary
        disk.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            disk.remove(temporary)
        raise
    disk.sync(path.parent)


def replace(disk: Disk, path: Path, data: bytes) -> None:
    """Put a whole file in place of another, which need not be there."""
    with placing(disk, path) as temporary:
        disk.write(temporary, data)


def make_folder(disk: Disk, folder: Path) -> None:
    """A folder, with those above it that are missing; their names survive a power cut."""
    for one in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        disk.mkdir(one)
        disk.sync(one.parent)


def sweep(disk: Disk, folder: Path, prefixes: tuple[str, ...] = (TEMPORARY,)) -> None:
    """Remove what interrupted work left in a folder, which need not exist."""
    for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
        if name.startswith(prefixes):
            disk.remove(folder / name)


@contextmanager
def storing(what: str, kept: str = "") -> Iterator[None]:
    """Say a failure of the disk as people read it: StorageFault "saving step 40 failed: No space left on device ...".

    kept: what stands all the same.
    """
    try:
        yield
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        rest = f"; {kept}" if kept else ""
        hint = _HINTS.get(error.errno or 0, "put that right; the same command continues")
        raise StorageFault(f"{what} failed: {error.strerror or error}{place}{rest}", hint=hint) from error


def refuse_strange(folder: Path) -> None:
    """RunFault naming the first thing in a run folder, or the folder itself, that is no plain file or folder.

    A link in the place of metrics.jsonl would lead to another file of ours, and a pipe there would never let us go on.
    """
    inside = (Path(parent, name) for parent, folders, files in os.walk(folder) for name in sorted([*folders, *files]))
    for path in (folder, *inside):
        mode = path.lstat().st_mode
        what = "a link" if stat.S_ISLNK(mode) else kind_of(mode)
        if what not in (None, "a folder"):
            hint = "remove it, or choose another folder with -d"
            raise RunFault(f"{path} is {what}; a run folder holds plain files and folders", hint=hint, where=[str(path)])

"""Opening files that others may have put there: never waits on a pipe, never reads a device, never more than so many bytes."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from mini_tf.system.limits import limits, spoken

_BLOCK = 1 << 20
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def kind_of(mode: int) -> str | None:
    """What a file is by its mode, where it is no plain file."""
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "not a plain file")


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """A plain file, or a link to one, for reading; OSError, whose strerror is for people, where it is anything else."""
    return os.fdopen(only_plain(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), path), "rb")


def only_plain(descriptor: int, path: str | os.PathLike[str]) -> int:
    """The descriptor of a plain file; OSError, whose strerror is for people, and the descriptor closed, where it is of anything else."""
    what = kind_of(os.fstat(descriptor).st_mode)
    if what is None:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, f"it is {what}, not a plain file", os.fspath(path))


def read_plain(path: Path, most: int) -> bytes:
    """All of a plain file; OSError where it holds more than `most` bytes, or is no plain file."""
    blocks, size = [], 0
    with open_plain(path) as file:
        while size <= most and (block := file.read(_BLOCK)):  # not `most` at once: memory for it would be taken first
            blocks.append(block)
            size += len(block)
    if size > most:
        raise OSError(errno.EFBIG, f"it is larger than {spoken(most)}", os.fspath(path))
    return b"".join(blocks)


def read_record(path: Path) -> bytes:
    """All of a small file of a run or of the cache; OSError as `read_plain`."""
    return read_plain(path, limits().record_bytes)

"""Safe reading of untrusted files: never blocks on a pipe, never reads a device, never exceeds a size limit."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from mini_tf.system.limits import format_bytes, limits

_BLOCK = 1 << 20
_TYPES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def file_type(mode: int) -> str | None:
    """The type of a file by its mode, such as "a pipe"; None for a plain file."""
    return None if stat.S_ISREG(mode) else _TYPES.get(stat.S_IFMT(mode), "not a plain file")


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a plain file, or a link to one, for reading. OSError, with a readable strerror, for anything else."""
    return os.fdopen(check_plain(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), path), "rb")


def check_plain(descriptor: int, path: str | os.PathLike[str]) -> int:
    """Return the descriptor of a plain file. Close that of anything else and raise OSError with a readable strerror."""
    type_ = file_type(os.fstat(descriptor).st_mode)
    if type_ is None:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, f"it is {type_}, not a plain file", os.fspath(path))


def read_plain(path: Path, max_bytes: int) -> bytes:
    """The content of a plain file; OSError if it is not one or is larger than `max_bytes`."""
    blocks, size = [], 0
    with open_plain(path) as file:
        while size <= max_bytes and (
            block := file.read(_BLOCK)
        ):  # one read of max_bytes would allocate all of them first
            blocks.append(block)
            size += len(block)
    if size > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {format_bytes(max_bytes)}", os.fspath(path))
    return b"".join(blocks)


def read_blocks(path: Path) -> Iterator[bytes]:
    """The content of a plain file of any size, block by block; OSError if it is not one."""
    with open_plain(path) as file:
        while block := file.read(_BLOCK):
            yield block


def read_small_file(path: Path) -> bytes:
    """`read_plain` of a small file of a run or of the cache, up to the limit record_bytes."""
    return read_plain(path, limits().record_bytes)

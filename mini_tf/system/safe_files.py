"""Safe files: untrusted ones are read within limits, new ones are written under a temporary name and renamed.

Reading never blocks on a pipe and never reads a device. Temporary names have the machine and process id, so those of
dead processes can be removed; a reader never sees a partial file.
"""

import contextlib
import errno
import itertools
import os
import re
import shutil
import signal
import stat
import sys
import threading
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

_MAX_NAMES = 1000
"""Names of a folder that are searched for a similar one."""


def file_type(mode: int) -> str | None:
    """The type of a file by its mode, such as "a pipe"; None for a plain file."""
    return None if stat.S_ISREG(mode) else _TYPES.get(stat.S_IFMT(mode), "not a plain file")


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a plain file, or a link to one, for reading. OSError, with a readable strerror, for anything else."""
    return os.fdopen(check_plain(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), path), "rb")


def names_beside(path: Path) -> list[str]:
    """Names in the folder of a path, for suggestions; none if it cannot be listed."""
    with contextlib.suppress(OSError):
        return [entry.name for entry in itertools.islice(path.parent.iterdir(), _MAX_NAMES)]
    return []


def free_name(path: Path) -> Path:
    """The path, or the first of NAME-2, NAME-3 and so on with its suffix that no file has."""
    paths = (path if n == 1 else path.with_stem(f"{path.stem}-{n}") for n in itertools.count(1))
    return next(free for free in paths if not os.path.lexists(free))


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


_MACHINE = os.uname().nodename.replace(".", "-")[:64]
"""Containers and machines on a network may share a folder, with equal process ids."""
_TOKEN = os.urandom(4).hex()
"""Distinguishes this process from an earlier one with the same process id."""
_NAME = re.compile(r"\..*\.(?P<machine>[^.]*)\.(?P<pid>[0-9]{1,18})\.(?P<token>[0-9a-f]+)\.tmp", re.DOTALL)


def temporary_path(path: Path) -> Path:
    """A temporary path in the folder of `path`; temporary files of dead processes are removed from there first."""
    remove_stale(path.parent)
    return path.with_name(f".{path.name}.{_MACHINE}.{os.getpid()}.{_TOKEN}.tmp")


@contextlib.contextmanager
def removed_at_end(path: Path) -> Iterator[None]:
    """Remove a temporary path that is still there at the end of the block, also if SIGTERM ends the process."""
    handles = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if handles:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        remove_path(path)
        if handles:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def write_atomically(path: Path, text: str) -> None:
    """Write a UTF-8 file through a temporary file and a rename."""
    temporary = temporary_path(path)
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def remove_stale(folder: Path) -> None:
    """Remove temporary files of this machine's dead processes."""
    for path in folder.glob(".*.tmp"):
        match = _NAME.fullmatch(path.name)
        if match is None or match["machine"] != _MACHINE:
            continue
        if match["token"] != _TOKEN if (pid := int(match["pid"])) == os.getpid() else not _is_alive(pid):
            remove_path(path)


def remove_path(path: Path) -> None:
    """Remove a file, a link or a whole folder; errors are ignored."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True

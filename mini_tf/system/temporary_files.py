"""Temporary files and folders: their names have the machine and process id, so those of dead processes can be removed.

Finished ones are renamed to their final name, so a reader never sees a partial file.
"""

import contextlib
import os
import re
import secrets
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_MACHINE = os.uname().nodename.replace(".", "-")[:64]
"""Containers and machines on a network may share a folder, with equal process ids."""
_TOKEN = secrets.token_hex(4)
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

"""Files and folders in the making: named after their process, and swept away once it is no more.

What is finished appears under its own name by one rename, so nobody ever reads a half of it.
"""

import contextlib
import os
import shutil
from pathlib import Path


def draft_of(path: Path) -> Path:
    """A name beside `path` for what will become it; what dead processes left there is removed first."""
    sweep(path.parent)
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def write_whole(path: Path, text: str) -> None:
    """A file that is there with all of `text`, or not at all."""
    draft = draft_of(path)
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def sweep(folder: Path) -> None:
    """Removes drafts of processes which are no more; our own number counts as such, since containers count from 1 again."""
    for draft in [*folder.glob(".*.tmp"), *folder.glob(".*.bad")]:
        pid = draft.name.split(".")[-2]
        if pid.isascii() and pid.isdigit() and (int(pid) == os.getpid() or not _alive(int(pid))):
            remove(draft)


def remove(path: Path) -> None:
    """A file, a link or a whole folder; what cannot be removed stays."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True

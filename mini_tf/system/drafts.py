"""Files and folders in the making: named after their machine and process, and swept away once it is no more.

What is finished appears under its own name by one rename, so nobody ever reads a half of it.
"""

import contextlib
import os
import re
import secrets
import shutil
from pathlib import Path

_HERE = os.uname().nodename.replace(".", "-")[:64]
"""Others may share the folder, and their processes count from 1 too: containers, or machines on a network."""
_THIS = secrets.token_hex(4)
"""Tells this process from an earlier one of its number."""
_MADE = re.compile(r"\..*\.(?P<machine>[^.]*)\.(?P<pid>[0-9]{1,18})\.(?P<token>[0-9a-f]+)\.tmp", re.DOTALL)


def draft_of(path: Path) -> Path:
    """A name beside `path` for what will become it; what dead processes left there is removed first."""
    sweep(path.parent)
    return path.with_name(f".{path.name}.{_HERE}.{os.getpid()}.{_THIS}.tmp")


def write_whole(path: Path, text: str) -> None:
    """A file that is there with all of `text`, or not at all."""
    draft = draft_of(path)
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def sweep(folder: Path) -> None:
    """Removes drafts of this machine's processes that are no more."""
    for draft in folder.glob(".*.tmp"):
        made = _MADE.fullmatch(draft.name)
        if made is None or made["machine"] != _HERE:
            continue
        if made["token"] != _THIS if (pid := int(made["pid"])) == os.getpid() else not _alive(pid):
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

"""The files that `-o` names: refused before anything is computed, written whole or not at all."""

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from mini_tf.cli.terminal.console import Console, to_json
from mini_tf.system.errors import StorageFault, UsageFault
from mini_tf.system.plain_file import file_type

OUTPUT = Annotated[
    list[Path] | None, typer.Option("-o", "--output", metavar="FILE", help="Write the result to a file; its suffix says how. Repeatable.")
]
FORCE = Annotated[bool, typer.Option("--force", help="Overwrite a FILE that exists.")]


def check(files: Sequence[Path] | None, suffixes: Sequence[str], force: bool, option: str = "--output") -> list[Path]:
    """The files, each of which may be written and has one of the suffixes (".png"); UsageFault otherwise. option: what named them."""
    files = list(files or [])
    for file in files:
        mode = _mode(file, option)
        if mode is not None and stat.S_ISDIR(mode):
            raise UsageFault(f"{option} {file}: is a folder; name a file in it")
        if file.suffix.lower() not in suffixes:
            raise UsageFault(f"{option} {file}: its suffix must be {' or '.join(suffixes)}")
        if not file.parent.is_dir():
            raise UsageFault(f"{option} {file}: there is no folder {file.parent}")
        if mode is not None:
            _check_old(file, mode, force, option)
    if len({file.resolve() for file in files}) < len(files):
        raise UsageFault(f"{option}: one file is named twice")
    return files


def _mode(file: Path, option: str) -> int | None:
    """What stands under the name, links not followed; None where nothing does. UsageFault where nothing can."""
    try:
        return os.lstat(file).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UsageFault(f"{option} {file}: {getattr(error, 'strerror', None) or error}") from None


def _check_old(file: Path, mode: int, force: bool, option: str) -> None:
    """What stands under the name may be replaced: a plain file that can be written, and only by --force.

    A link is no plain file: a new one in its place would not be where it leads to, and where that is nobody sees here.
    """
    if not stat.S_ISREG(mode):
        what = "a link" if stat.S_ISLNK(mode) else file_type(mode)
        raise UsageFault(f"{option} {file}: is {what}, not a plain file", hint="give another name")
    if not force:
        raise UsageFault(f"{option} {file}: exists", hint="--force overwrites it")
    if not mode & stat.S_IWUSR:
        raise UsageFault(f"{option} {file}: is read-only", hint="give another name")


def write(file: Path, data: bytes) -> None:
    """Write a whole file: whoever reads it finds the old one or the new one, never a part.

    Not as a run's files are written (`run/disk.py`): nobody sweeps a user's folder, so what could not be finished goes at once.
    """
    temporary = file.with_name(f".minitf.{os.getpid()}.tmp")
    try:
        with suppress(FileNotFoundError):
            temporary.unlink()
        # Its name can be guessed: what somebody put there meanwhile, such as a link, is refused and not written through.
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as new:
            new.write(data)
        temporary.replace(file)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StorageFault(f"--output {file}: {error.strerror or error}", where=[str(file)]) from error


def write_all(console: Console, files: Sequence[Path], result: Any, draw: Callable[[str], bytes] | None = None) -> None:
    """Write each file and say so: the result itself to one that ends in .json, to others what `draw` makes for the suffix ("png")."""
    for file in files:
        suffix = file.suffix.lower()[1:]
        if suffix == "json":
            data = (to_json(result) + "\n").encode()
        else:
            assert draw is not None, "`check` was given no other suffix"
            data = draw(suffix)
        write(file, data)
        console.say(f"written: {file}")

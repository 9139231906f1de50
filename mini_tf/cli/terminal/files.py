"""Output files (`-o`): checked before anything is computed, written atomically; and how pictures look."""

import inspect
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from mini_tf.cli.terminal.console import Console
from mini_tf.cli.terminal.loading import at_terminal
from mini_tf.cli.terminal.options import io_option
from mini_tf.cli.terminal.streams import to_json
from mini_tf.system.errors import StorageFault, UsageFault
from mini_tf.system.safe_files import file_type

_OUTPUT_HELP = "Write to a file; its suffix is the format. Repeatable."
OUTPUT = Annotated[list[Path] | None, io_option("-o", "--output", metavar="FILE", help=_OUTPUT_HELP)]
DARK = Annotated[bool, io_option("--dark", help="A picture on a dark background.")]
_NO_TITLE_HELP = "A picture without title and notes, for a text with captions."
NO_TITLE = Annotated[bool, io_option("--no-title", help=_NO_TITLE_HELP)]
_FORCE_HELP = "Overwrite an existing FILE; a picture that minitf drew is overwritten without it."
FORCE = Annotated[bool, io_option("--force", help=_FORCE_HELP)]


def draws(body: Callable[..., int | None]) -> Callable[..., int | None]:
    """A command whose files may be pictures: with --dark and --no-title, which change how `drawing` draws them."""

    def drawing(console: Console, *, dark: DARK = False, no_title: NO_TITLE = False, **options: Any) -> int | None:
        from mini_tf.drawing.look import Look, drawn_as

        with drawn_as(Look(dark, titled=not no_title)):
            return body(console, **options)

    of_body = inspect.signature(body, eval_str=True).parameters.values()
    of_drawing = inspect.signature(drawing, eval_str=True).parameters.values()
    kept = [parameter for parameter in of_body if parameter.kind != parameter.VAR_KEYWORD]
    added = [parameter for parameter in of_drawing if parameter.kind == parameter.KEYWORD_ONLY]
    drawing.__signature__ = inspect.Signature([*kept, *added])  # type: ignore[attr-defined]
    drawing.__name__, drawing.__doc__, drawing.__module__ = body.__name__, body.__doc__, body.__module__
    return drawing


def picture_or_json() -> tuple[str, ...]:
    """Suffixes of a picture and its numbers."""
    from mini_tf.drawing.look import PICTURES

    return (*PICTURES, ".json")


def check(files: Sequence[Path] | None, suffixes: Sequence[str], force: bool) -> list[Path]:
    """The files of --output; UsageFault if one cannot be written or lacks one of the suffixes (".png")."""
    files = list(files or [])
    for file in files:
        check_file(file, suffixes, force)
    if len({file.resolve() for file in files}) < len(files):
        raise UsageFault("--output: one file is named twice")
    check_look(files)
    return files


def check_file(file: Path, suffixes: Sequence[str], force: bool, option: str = "--output") -> None:
    """`check` of one file. option: the option that names it."""
    mode = _mode(file, option)
    if mode is not None and stat.S_ISDIR(mode):
        raise UsageFault(f"{option} {file}: is a folder; name a file in it")
    if file.suffix.lower() not in suffixes:
        raise UsageFault(f"{option} {file}: its suffix must be {' or '.join(suffixes)}")
    if not file.parent.is_dir():
        raise UsageFault(f"{option} {file}: there is no folder {file.parent}")
    if mode is not None:
        _check_old(file, mode, force, option)


def check_look(files: Sequence[Path], option: str = "--output") -> None:
    """UsageFault if a look was chosen, but none of the files is a picture."""
    from mini_tf.drawing.look import PICTURES, Look, look

    if look() != Look() and not any(file.suffix.lower() in PICTURES for file in files):
        name = "--dark" if look().dark else "--no-title"
        raise UsageFault(f"{name} is of a picture, and none is written", hint=f"add {option} FILE{PICTURES[0]}")


def _mode(file: Path, option: str) -> int | None:
    """Mode of the existing file, links not followed; None if there is none. UsageFault for an impossible name."""
    try:
        return os.lstat(file).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UsageFault(f"{option} {file}: {getattr(error, 'strerror', None) or error}") from None


def _check_old(file: Path, mode: int, force: bool, option: str) -> None:
    """UsageFault unless the existing file is a regular, writable one, and --force is given or minitf has drawn it.

    Links are refused.
    """
    if not stat.S_ISREG(mode):
        kind = "a link" if stat.S_ISLNK(mode) else file_type(mode)
        raise UsageFault(f"{option} {file}: is {kind}, not a regular file", hint="give another name")
    if not force and not _is_drawn_here(file):
        raise UsageFault(f"{option} {file}: exists", hint="--force overwrites it")
    if not mode & stat.S_IWUSR:
        raise UsageFault(f"{option} {file}: is read-only", hint="give another name")


_DRAWN = (
    *(b"Software\0minitf", b"<dc:title>minitf</dc:title>", b"/Creator (minitf)"),
    b'<meta name="generator" content="minitf">',
)
"""What pictures (png, svg, pdf) and pages of minitf have near their beginning or their end."""


def _is_drawn_here(file: Path) -> bool:
    """Whether minitf has drawn a picture, which can then be drawn again."""
    try:
        with file.open("rb") as content:
            ends = content.read(4096)
            content.seek(-min(4096, content.seek(0, os.SEEK_END)), os.SEEK_END)
            ends += content.read()
    except OSError:
        return False
    return any(mark in ends for mark in _DRAWN)


def write(file: Path, data: bytes) -> None:
    """Write a file atomically. On failure the temporary file is removed at once, unlike in `run/disk.py`."""
    temporary = file.with_name(f".minitf.{os.getpid()}.tmp")
    try:
        with suppress(FileNotFoundError):
            temporary.unlink()
        # O_EXCL: the name can be guessed, and a link planted there must not be followed.
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as new:
            new.write(data)
        temporary.replace(file)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StorageFault(f"--output {file}: {error.strerror or error}", where=[str(file)]) from error


def write_all(console: Console, files: Sequence[Path], result: Any, draw: Callable[[str], bytes] | None = None) -> None:
    """Write each file: `result` for .json, else what `draw(suffix)` returns ("png")."""
    for file in files:
        suffix = file.suffix.lower()[1:]
        if suffix == "json":
            data = (to_json(result) + "\n").encode()
        else:
            assert draw is not None, "`check` was given no other suffix"
            with at_terminal(f"drawing {file}"):
                data = draw(suffix)
        write(file, data)
        console.say(f"written: {file}")

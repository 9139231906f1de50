"""stdout for results, stderr for messages, of which the reader of either may have closed it; and Ctrl-C."""

import errno
import fcntl
import json
import math
import os
import signal
import stat
import sys
import termios
import threading
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from mini_tf.system import reporting


class ReaderLeft(Exception):
    """The reader of stdout closed it (`| head -1`)."""


def wants_color(choice: str, stream: TextIO | None) -> bool:
    """auto: color on a terminal, unless NO_COLOR (https://no-color.org) or TERM=dumb is set."""
    if choice != "auto":
        return choice == "always"
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_terminal(stream: TextIO | None) -> bool:
    with suppress(ValueError, OSError):
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    return False


def has_unread_input() -> bool:
    """Whether stdin is a pipe with something in it, or a file that nothing has been read of."""
    with suppress(ValueError, OSError, AttributeError):
        stdin, waiting = sys.stdin.fileno(), array("i", [0])
        if stat.S_ISREG((state := os.fstat(stdin)).st_mode):
            return state.st_size > 0 == os.lseek(stdin, 0, os.SEEK_CUR)
        if stat.S_ISFIFO(state.st_mode):
            fcntl.ioctl(stdin, termios.FIONREAD, waiting)
        return waiting[0] > 0
    return False


def write_stdout(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError as gone:
        silence(sys.stdout)
        raise ReaderLeft from gone
    except OSError as error:
        silence(sys.stdout)
        if error.errno == errno.EBADF:
            raise OSError(errno.EBADF, "stdout is closed, so the result is lost") from error
        raise


def write_stderr(text: str) -> None:
    # Training continues when its terminal is closed.
    if sys.stderr is None:
        return
    try:
        reporting.write_stderr(text)
    except (OSError, ValueError):
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Redirect a stream to /dev/null: flushing its buffer at exit would fail again and change the exit code to 120."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def to_json(value: Any) -> str:
    """One line of ASCII JSON, so that nothing in it steers a terminal; a number that is not finite becomes null."""
    return json.dumps(_plain(value), allow_nan=False).replace("\x7f", "\\u007f")


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it SIGINT raises KeyboardInterrupt, unless SIGINT is ignored or this is not the main thread.

    C code of a library that is being imported may swallow KeyboardInterrupt, and a callback (`__del__`, a weak
    reference) cannot propagate it: Python prints it and continues. In these cases the process dies by the signal, and
    there is never a traceback.
    """
    before, printing = signal.getsignal(signal.SIGINT), sys.unraisablehook
    if before in (signal.SIG_IGN, None) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def lost(unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            _die()
        printing(unraisable)

    try:
        signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = lost
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = printing


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _die()
        frame = frame.f_back
    raise KeyboardInterrupt


def _die() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)

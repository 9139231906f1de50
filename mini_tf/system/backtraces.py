"""What a Rust panic writes to file descriptor 2, before anyone can catch it, sent nowhere; our own lines still arrive."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

_lock = threading.RLock()
"""Of the thread that turns the descriptor, or writes; a signal's handler may write while its thread does."""
_depth, _kept = 0, -1
"""How many are within `without_backtraces`, and the descriptor that stderr has meanwhile."""


@contextlib.contextmanager
def without_backtraces() -> Iterator[None]:
    """Sends file descriptor 2 nowhere for a moment. It is one for the whole process: what is to arrive is written by `write_stderr`."""
    _turn_off()
    try:
        yield
    finally:
        _turn_on()


def _turn_off() -> None:
    global _depth, _kept
    with _lock:
        _depth += 1
        if _depth > 1:
            return
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
        with contextlib.suppress(OSError):  # then a backtrace is seen
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            try:
                _kept = os.dup(2)
                os.dup2(nowhere, 2)
            finally:
                os.close(nowhere)


def _turn_on() -> None:
    global _depth, _kept
    with _lock:
        _depth -= 1
        if _depth == 0 and _kept >= 0:
            os.dup2(_kept, 2)
            os.close(_kept)
            _kept = -1


def write_stderr(text: str) -> None:
    """Write to sys.stderr, also while its file descriptor is sent nowhere by another thread. Raises what a write raises."""
    with _lock:
        if _kept >= 0 and _is_descriptor_2():
            os.write(_kept, text.encode(sys.stderr.encoding or "utf-8", "backslashreplace"))
            return
        sys.stderr.write(text)
        sys.stderr.flush()


def _is_descriptor_2() -> bool:
    with contextlib.suppress(OSError, ValueError):
        return sys.stderr.fileno() == 2
    return False

"""Writing to stderr while file descriptor 2 is redirected to /dev/null, to hide what a Rust panic writes there."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

_lock = threading.RLock()
"""Held while the descriptor is changed or written to; reentrant for signal handlers of the same thread."""
_depth, _saved = 0, -1
"""Number of active `suppressed_stderr` blocks, and the duplicate of the original stderr descriptor (-1: none)."""


@contextlib.contextmanager
def suppressed_stderr() -> Iterator[None]:
    """Redirect file descriptor 2 of the process to /dev/null; `write_stderr` still reaches the original stderr."""
    _redirect()
    try:
        yield
    finally:
        _restore()


def _redirect() -> None:
    global _depth, _saved
    with _lock:
        _depth += 1
        if _depth > 1:
            return
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
        with contextlib.suppress(OSError):  # on failure backtraces stay visible
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            try:
                _saved = os.dup(2)
                os.dup2(null, 2)
            finally:
                os.close(null)


def _restore() -> None:
    global _depth, _saved
    with _lock:
        _depth -= 1
        if _depth == 0 and _saved >= 0:
            os.dup2(_saved, 2)
            os.close(_saved)
            _saved = -1


def write_stderr(text: str) -> None:
    """Write to sys.stderr, also while another thread redirects its descriptor. Raises what a write raises."""
    with _lock:
        if _saved >= 0 and _is_descriptor_2():
            os.write(_saved, text.encode(sys.stderr.encoding or "utf-8", "backslashreplace"))
            return
        sys.stderr.write(text)
        sys.stderr.flush()


def _is_descriptor_2() -> bool:
    with contextlib.suppress(OSError, ValueError):
        return sys.stderr.fileno() == 2
    return False

"""What a Rust panic writes to file descriptor 2, before anyone can catch it, sent nowhere; our own lines still arrive."""

import contextlib
import os
import sys
from collections.abc import Iterator

_kept: list[int] = []


@contextlib.contextmanager
def without_backtraces() -> Iterator[None]:
    """Sends file descriptor 2 nowhere for a moment. It is one for the whole process: what is to arrive is written by `write_stderr`."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # then a backtrace is seen
            stack.callback(os.close, kept := os.dup(2))
            stack.callback(os.close, nowhere := os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
            os.dup2(nowhere, 2)
            stack.callback(os.dup2, kept, 2)
            _kept.append(kept)
            stack.callback(_kept.remove, kept)
        yield


def write_stderr(text: str) -> None:
    """Write to sys.stderr, also while its file descriptor is sent nowhere by another thread. Raises what a write raises."""
    if _kept and _is_descriptor_2():
        os.write(_kept[0], text.encode(sys.stderr.encoding or "utf-8", "backslashreplace"))
        return
    sys.stderr.write(text)
    sys.stderr.flush()


def _is_descriptor_2() -> bool:
    with contextlib.suppress(OSError, ValueError):
        return sys.stderr.fileno() == 2
    return False

"""Messages of a run: lines and a progress bar on stderr, and all of them in the log of the run.

Also stderr while its descriptor is redirected to /dev/null, to hide what a Rust panic writes there.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mini_tf.system.safe_text import safe_text

if TYPE_CHECKING:
    from tqdm import tqdm

Tone = Literal["", "error", "warning"]


class LineReporter:
    """Prints lines. With a run folder, `log` receives every line and `crash` the traceback of a bug.

    quiet: only warnings are printed. verbose: details are printed, too.
    """

    def __init__(self, quiet: bool = False, verbose: bool = False) -> None:
        self.quiet, self.verbose = quiet, verbose
        self.log: Callable[[str], None] | None = None
        self.crash: Callable[[str], Path] | None = None
        self._bar: tqdm[Any] | None = None

    @property
    def live(self) -> bool:
        """Whether a progress bar is drawn."""
        return False

    def say(self, line: str) -> None:
        """A line; quiet hides it."""
        self.write(line, hidden=self.quiet)

    def detail(self, line: str) -> None:
        """A line that only verbose shows; log.txt always has it."""
        self.write(line, hidden=not self.verbose)

    def warn(self, line: str) -> None:
        """A warning, also if quiet."""
        self.write(f"warning: {line}", tone="warning")

    def bar(self, total: int, initial: int) -> "tqdm[Any]":
        """A progress bar (tqdm), drawn only if `live`; a context manager with `update`."""
        from tqdm import tqdm

        self._bar = tqdm(
            total=total,
            initial=initial,
            disable=not self.live,
            file=sys.stderr,
            dynamic_ncols=True,
            leave=False,
            bar_format="{l_bar}{bar:10}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
            mininterval=0.2,
        )
        return self._bar

    def write(self, line: str, *, hidden: bool = False, tone: Tone = "") -> None:
        """Log a line, and print it unless it is hidden; control characters are escaped."""
        line = safe_text(line)
        if self.log is not None:
            with contextlib.suppress(OSError):
                self.log(line)
        if not hidden:
            self._show(line, tone)

    @property
    def _shown_bar(self) -> "tqdm[Any] | None":
        return None if self._bar is None or self._bar.disable else self._bar

    def _show(self, line: str, tone: Tone) -> None:
        if self._shown_bar is not None:
            self._shown_bar.clear()
        write_stderr(line + "\n")


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

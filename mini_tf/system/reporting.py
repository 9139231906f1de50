"""Messages of a run: lines and a progress bar on stderr, and all of them in the log of the run."""

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mini_tf.system.safe_text import safe_text
from mini_tf.system.stderr import write_stderr

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

    def bar(self, total: int, unit: str = "step", initial: int = 0) -> "tqdm[Any]":
        """A progress bar (tqdm), drawn only if `live`; a context manager with `update`."""
        from tqdm import tqdm

        self._bar = tqdm(
            total=total,
            unit=unit,
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
            with suppress(OSError):
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

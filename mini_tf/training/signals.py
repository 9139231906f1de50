"""Signal handling: Ctrl-C and kill stop training between two steps, where a checkpoint can be saved.

The first SIGINT, SIGTERM, SIGHUP or SIGQUIT sets a flag; the caller of the training loop checks it after each step,
saves and exits with 128 + the signal's number. A second SIGINT has its previous handler: it exits at once.
"""

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from mini_tf.system.errors import is_of_compiler

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
AGAIN = "Ctrl-C again stops at once and loses the steps since the last checkpoint"


class Stopped(Exception):
    """A stop was requested during work that may be abandoned."""


class StopRequest:
    """Context manager that catches the stop signals, and restores the previous handlers on exit.

    Ignored signals stay ignored, for `nohup`. Outside the main thread, where Python allows no handlers, nothing is
    caught. Nested instances share a request.

    Ctrl-C in a terminal, and SIGTERM of a batch system, also reach child processes. A C++ compiler that runs for the
    first step is killed by it, and torch.compile fails: that failure becomes SystemExit with the signal's exit code.
    """

    def __init__(self, notify: Callable[[str], None] = lambda line: None) -> None:
        """notify: prints a line when the signal arrives."""
        self._notify = notify
        self.signal: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}
        self._outer: StopRequest | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    @property
    def number(self) -> int:
        """The signal's number; 0 without a request."""
        return 0 if self.signal is None else int(self.signal)

    def request(self, number: int) -> None:
        """A request that another process of the run got; 0 is none."""
        if number and self.signal is None:
            self._request(signal.Signals(number))

    def check(self) -> None:
        """Raise Stopped if a stop was requested."""
        if self:
            raise Stopped

    @property
    def exit_code(self) -> int:
        """130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP, 131 for SIGQUIT; 0 without a request."""
        return self.number and 128 + self.number

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in _STOP_SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)
                    outer = getattr(self._previous[number], "__self__", None)
                    self._outer = outer if isinstance(outer, StopRequest) else self._outer
        if self._outer is not None:
            self.signal = self._outer.signal
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in list(self._previous):
            self._restore(number)
        if self.signal is not None and is_of_compiler(error):
            raise SystemExit(self.exit_code) from error

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self._request(signal.Signals(number))
            with suppress(RuntimeError):  # the signal interrupted the writing of another line
                self._notify(
                    f"{signal.Signals(number).name}: stopping after the current step or evaluation, then saving;"
                    f" {AGAIN}"
                )
        elif number == signal.SIGINT:
            self._restore(signal.SIGINT)
            signal.raise_signal(number)

    def _request(self, number: signal.Signals) -> None:
        self.signal = number
        if self._outer is not None:
            self._outer._request(number)

    def _restore(self, number: signal.Signals) -> None:
        handler = self._previous.pop(number, None)
        # None also means a handler that was not installed from Python, which cannot be restored.
        signal.signal(number, handler if handler is not None else signal.SIG_DFL)

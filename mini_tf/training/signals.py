"""Signals stop training between two steps, where everything can be saved.

The first SIGINT, SIGTERM, SIGHUP or SIGQUIT only sets a flag; the caller of the loop checks it after each step, saves
and exits with 128 + the signal's number. A second SIGINT has its usual effect: it stops at once.
"""

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

_COMPILER = ("torch._inductor", "torch._dynamo")
_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
AGAIN = "Ctrl-C again stops at once and loses the steps since the last checkpoint"


class Stopped(Exception):
    """A stop was requested during work that need not be finished."""


class StopRequest:
    """Within it these signals set a flag; earlier handlers are restored at the end.

    Ignored signals stay ignored, so `nohup` works. Outside the main thread, where Python takes no handlers, nothing is
    caught. Nested instances share the flag.

    A terminal sends Ctrl-C to every process of a command, and a batch system its SIGTERM. A C++ compiler at work for
    the first step dies of it, so that step cannot be finished: this raises SystemExit with the signal's exit code.
    """

    def __init__(self, answer: Callable[[str], None] = lambda line: None) -> None:
        """answer: called at once when a signal arrives."""
        self._answer = answer
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._around: StopRequest | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def check(self) -> None:
        """Raise Stopped if a stop was requested."""
        if self:
            raise Stopped

    @property
    def exit_code(self) -> int:
        """130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP, 131 for SIGQUIT; 0 without a signal."""
        return 0 if self.signal is None else 128 + self.signal

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in _ASKING:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
                    around = getattr(self._before[number], "__self__", None)
                    self._around = around if isinstance(around, StopRequest) else self._around
        if self._around is not None:
            self.signal = self._around.signal
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number in list(self._before):
            self._put_back(number)
        if self.signal is not None and type(error).__module__.startswith(_COMPILER):
            raise SystemExit(self.exit_code) from error

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self._ask(signal.Signals(number))
            with suppress(RuntimeError):  # the signal came while a line was being written
                self._answer(f"{signal.Signals(number).name}: stopping after the current step or evaluation, then saving; {AGAIN}")
        elif number == signal.SIGINT:
            self._put_back(signal.SIGINT)
            signal.raise_signal(number)

    def _ask(self, number: signal.Signals) -> None:
        self.signal = number
        if self._around is not None:
            self._around._ask(number)

    def _put_back(self, number: signal.Signals) -> None:
        handler = self._before.pop(number, None)
        # None also stands for a handler that was not installed from Python, which cannot be restored.
        signal.signal(number, handler if handler is not None else signal.SIG_DFL)

"""Ctrl-C and kill ask training to stop; it stops between two steps, where everything can be saved.

The first SIGINT, SIGTERM, SIGHUP or SIGQUIT only raises a flag; the reader of the loop looks at it after each step, saves and
exits with 128 + the signal's number. A second SIGINT does what it did before training: it leaves at once.
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
    """Somebody asked to stop while work went on that may be left undone."""


class StopRequest:
    """While entered, catches these signals; the handlers of before come back at the end.

    What is ignored stays ignored, so `nohup` keeps its meaning. Outside the main thread, where Python takes no handlers,
    nothing is caught. Of several within each other, each knows what any of them was asked.

    A terminal sends Ctrl-C to every process of a command, and a batch system its SIGTERM. A C++ compiler at work for the first
    step dies of it, so that step cannot be finished: that failure leaves as SystemExit with the signal's exit code.
    """

    def __init__(self, answer: Callable[[str], None] = lambda line: None) -> None:
        """answer: says at once that the signal was heard."""
        self._answer = answer
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._around: StopRequest | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def check(self) -> None:
        """Stopped, if somebody asked for it."""
        if self:
            raise Stopped

    @property
    def exit_code(self) -> int:
        """130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP, 131 for SIGQUIT; 0 where nobody asked."""
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
        # None also stands for a handler that was not installed from Python, which cannot be put back.
        signal.signal(number, handler if handler is not None else signal.SIG_DFL)

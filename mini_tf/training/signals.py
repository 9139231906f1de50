"""Ctrl-C and kill ask training to stop; it stops between two steps, where everything can be saved.

The first SIGINT, SIGTERM or SIGHUP only raises a flag; the reader of the loop looks at it after each step, saves and exits
with 128 + the signal's number. A second SIGINT leaves at once, as KeyboardInterrupt.
"""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """While entered, catches the three signals; the handlers of before come back at the end.

    What is ignored stays ignored, so `nohup` keeps its meaning. Outside the main thread, where Python takes no handlers,
    nothing is caught.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __bool__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP; 0 where nobody asked."""
        return 0 if self.signal is None else 128 + self.signal

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in _ASKING:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            # None stands for a handler that was not installed from Python, which cannot be put back.
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self.signal is None:
            self.signal = signal.Signals(number)

"""Ctrl-C while a command runs: KeyboardInterrupt where Python can raise it, else immediate exit; never a traceback.

C code of a library that is being imported may swallow KeyboardInterrupt, and a callback (`__del__`, a weak reference)
cannot propagate it: Python prints it and continues. In these cases the process dies by the signal.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it SIGINT raises KeyboardInterrupt, unless SIGINT is ignored or this is not the main thread."""
    before, printing = signal.getsignal(signal.SIGINT), sys.unraisablehook
    if before in (signal.SIG_IGN, None) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def lost(what: Any) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            _die()
        printing(what)

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

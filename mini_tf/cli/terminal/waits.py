"""Progress of a wait: its name after one second, then its percentage, in place on a terminal, else every 15 s."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from mini_tf.system.progress import ProgressCallback, ProgressDisplay

DELAY = 1.0
"""Seconds before a wait is shown."""
AGAIN = 15.0
"""Seconds between two lines about the same wait where stderr is no terminal."""


class Display(Protocol):
    """A terminal: `say` prints a line, `status` a line that the next one replaces ("" removes it) if it is `live`."""

    @property
    def live(self) -> bool: ...
    def say(self, line: str) -> None: ...
    def status(self, line: str) -> None: ...


def waits_of(display: Display, clock: Callable[[], float] = time.monotonic) -> ProgressDisplay:
    """The function that shows waits on this display."""

    @contextmanager
    def show(name: str) -> Iterator[ProgressCallback]:
        wait = _Wait(display, name, clock)
        timer = threading.Timer(DELAY, wait.begin)
        timer.daemon = True
        timer.start()
        try:
            yield wait.reached
        finally:
            timer.cancel()
            wait.end()

    return show


class _Wait:
    """`begin` is called by a timer thread."""

    def __init__(self, display: Display, name: str, clock: Callable[[], float]) -> None:
        self._display, self._name, self._clock = display, name, clock
        self._said: float | None
        self._lock, self._said, self._over = threading.Lock(), None, False

    def begin(self) -> None:
        with self._lock:
            if not self._over:
                self._said = self._clock()
                self._show(f"{self._name} ...")

    def reached(self, share: float) -> None:
        with self._lock:
            every = 0.2 if self._display.live else AGAIN
            if not self._over and self._said is not None and self._clock() - self._said >= every:
                self._said = self._clock()
                self._show(f"{self._name}: {share:.0%}")

    def end(self) -> None:
        with self._lock:
            self._over = True
            if self._said is not None and self._display.live:
                self._display.status("")

    def _show(self, line: str) -> None:
        (self._display.status if self._display.live else self._display.say)(line)

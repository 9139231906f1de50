"""An end for what would wait for ever, as a failure of the one test, and long after the slowest machine is done."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS = 600


class Hang(BaseException):
    """No command catches it."""


@contextmanager
def ending(seconds: int = SECONDS) -> Iterator[None]:
    """Hang is raised in what still goes on after so many seconds, unless it never comes back from a library in C."""

    def ring(*_: object) -> None:
        raise Hang(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    left = signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(left)  # of an outer one, or none
        signal.signal(signal.SIGALRM, before)


def outcome(process: Any) -> tuple[str, str]:
    """What a process that leads a session printed on stdout and stderr; where it does not end, its session is
    killed.
    """
    try:
        return process.communicate(timeout=SECONDS)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise

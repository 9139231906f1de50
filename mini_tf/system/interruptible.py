"""Calls into libraries that block signals, made interruptible by Ctrl-C."""

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
_POLL_SECONDS = 0.1
"""Python handles a signal only between two polls of the thread."""


def interruptible_call(work: Callable[[], Result]) -> Result:
    """Run `work` in a daemon thread, and return or raise its result; an interrupt does not wait for the thread."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # raised again in the calling thread
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_POLL_SECONDS)
    if errors:
        raise errors[0]
    return results[0]

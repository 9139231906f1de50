"""Work of a library that cannot be interrupted, made so that Ctrl-C is answered at once all the same."""

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
_LOOK = 0.1
"""Seconds between two looks; only then Python handles a signal."""


def interruptible_call(work: Callable[[], Result]) -> Result:
    """What `work` gives or raises, in a thread of its own: who interrupts need not wait for it, and it ends with the process."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # whatever it is, it is raised where it was called
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK)
    if errors:
        raise errors[0]
    return results[0]

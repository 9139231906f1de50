"""Progress of slow operations; nothing is shown until a command installs a display with `progress_display`."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

ProgressCallback = Callable[[float], None]
"""Called with the completed share, 0 to 1."""
ProgressDisplay = Callable[[str], AbstractContextManager[ProgressCallback]]


def _ignore(share: float) -> None: ...


_displays: list[ProgressDisplay] = [lambda operation: nullcontext(_ignore)]


@contextmanager
def show_progress(operation: str) -> Iterator[ProgressCallback]:
    """Show that an operation is running, such as "reading the data"; yields the callback that takes its progress."""
    with _displays[-1](operation) as callback:
        yield callback


def adding_up(reached: ProgressCallback, total: int) -> Callable[[int], None]:
    """A function that adds an amount, and passes on the share of `total` that is done so far."""
    done = 0

    def advance(amount: int) -> None:
        nonlocal done
        done += amount
        reached(min(1.0, done / max(total, 1)))

    return advance


@contextmanager
def progress_display(display: ProgressDisplay) -> Iterator[None]:
    """Within this block `display(operation)` is entered for each `show_progress` of this process."""
    _displays.append(display)
    try:
        yield
    finally:
        _displays.remove(display)

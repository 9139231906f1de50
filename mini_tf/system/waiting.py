"""What a person waits for: work that may take seconds says here what it is and how far it has come, and a terminal shows it.

Nothing is shown until a command installs something that shows (`shown_by`); so the code that works needs to know nothing of terminals.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

Reached = Callable[[float], None]
"""Told now and then which share (0 to 1) of the work is done."""
Show = Callable[[str], AbstractContextManager[Reached]]


def _nothing(share: float) -> None: ...


_shows: list[Show] = [lambda what: nullcontext(_nothing)]


@contextmanager
def waiting(what: str) -> Iterator[Reached]:
    """Within it somebody waits for `what`, such as "reading the text"; gives what to tell how far it is."""
    with _shows[-1](what) as reached:
        yield reached


@contextmanager
def shown_by(show: Show) -> Iterator[None]:
    """Within it `show(what)` is entered for each wait of this process."""
    _shows.append(show)
    try:
        yield
    finally:
        _shows.remove(show)

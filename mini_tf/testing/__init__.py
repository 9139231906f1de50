"""The contracts of packages of kinds, as functions: what every kind of a package must do, tried on settings of one's own.

    from mini_tf.testing import attention
    for case in attention.cases(Settings(n_features=8)):
        case.run()                     # an AssertionError says what does not hold

Each module has `cases(settings)`, which lists what is tried, by name, so that a test runner can report each by itself.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, TypeVar

Settings = TypeVar("Settings")


class Case(NamedTuple):
    """One thing that must hold; `run` raises AssertionError where it does not."""

    name: str
    run: Callable[[], None]

    def __str__(self) -> str:
        return self.name


def cases_of(checks: Iterable[Callable[[Settings], None]], settings: Settings) -> list[Case]:
    """A case for each check of these settings, by the name of its function."""
    return [Case(check.__name__, partial(check, settings)) for check in checks]

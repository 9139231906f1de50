"""Contract tests for kinds: functions that check every requirement of a package of kinds, for any settings.

    from mini_tf.testing import attention
    for case in attention.cases(Settings(n_features=8)):
        case.run()                     # raises AssertionError if a requirement is not met

Each module has `cases(settings)`, a list of named checks, so that a test runner can report each one.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, TypeVar

Settings = TypeVar("Settings")


class Case(NamedTuple):
    """One check; `run` raises AssertionError if it fails."""

    name: str
    run: Callable[[], None]

    def __str__(self) -> str:
        return self.name


def cases_of(checks: Iterable[Callable[[Settings], None]], settings: Settings) -> list[Case]:
    """A case for each check with these settings, named after the function."""
    return [Case(check.__name__, partial(check, settings)) for check in checks]

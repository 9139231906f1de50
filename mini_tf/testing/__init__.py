"""Contract tests for kinds: functions that check every requirement of a package of kinds, for any settings.

    from mini_tf.testing import attention, run_all
    run_all(attention.cases(Settings(n_features=8)))   # raises AssertionError if a requirement is not met

Each module has `cases(settings)`, a list of named checks; `run_all` runs them and names each that fails.
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


def run_all(cases: Iterable[Case]) -> None:
    """Run every check; AssertionError with the name and the message of each one that fails."""
    failures: dict[str, Exception] = {}
    for case in cases:
        try:
            case.run()
        except Exception as error:
            failures[case.name] = error
    if failures:
        messages = [f"{name}: {type(error).__name__}: {error}" for name, error in failures.items()]
        raise AssertionError("\n".join(messages)) from next(iter(failures.values()))

"""Contract tests for kinds: functions that check every requirement of a package of kinds, for any settings.

    from mini_tf.testing import attention, run_all
    run_all(attention.cases(Settings(n_features=8)))   # raises AssertionError if a requirement is not met

Each module has `cases(settings)`, a list of named checks, its public functions of one parameter; `run_all` runs them
and names each that fails.
"""

import sys
from collections.abc import Callable, Iterable
from functools import partial
from inspect import isfunction, signature
from typing import NamedTuple, TypeVar

Settings = TypeVar("Settings")


class Case(NamedTuple):
    """One check; `run` raises AssertionError if it fails."""

    name: str
    run: Callable[[], None]

    def __str__(self) -> str:
        return self.name


def checks_of(module: str) -> tuple[Callable[..., None], ...]:
    """The checks of a contract: the public functions of its module that have one parameter and return nothing."""
    functions = [member for member in vars(sys.modules[module]).values() if isfunction(member)]
    public = [check for check in functions if check.__module__ == module and not check.__name__.startswith("_")]
    signatures = {check: signature(check) for check in public}
    return tuple(check for check, it in signatures.items() if it.return_annotation is None and len(it.parameters) == 1)


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

"""Kinds of other people: each file of a folder here is one kind of the package of that name, for tests to add to it."""

import importlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mini_tf.testing.kinds import kinds_in

FOLDER = Path(__file__).parent


def words(package: str) -> list[str]:
    """Those of a package."""
    return sorted(file.stem for file in (FOLDER / package.replace(".", "/")).glob("*.py"))


def made(package: str) -> dict[str, Any]:
    """The default settings of each kind of a package."""
    return {word: importlib.import_module(f"strangers.{package}.{word}").Settings() for word in words(package)}


@pytest.fixture
def strangers() -> Iterator[None]:
    """The packages have these kinds too, as if their files lay in them."""
    with ExitStack() as entered:
        for folder in sorted({file.parent for file in FOLDER.rglob("*.py")} - {FOLDER}):
            entered.enter_context(kinds_in(".".join(folder.relative_to(FOLDER).parts), folder))
        yield

"""Kinds of other people, laid out as an installed package that adds them (or as a paper), for tests."""

import importlib
from collections.abc import Iterator
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
    """These kinds are installed."""
    with kinds_in(FOLDER):
        yield

"""Kinds of other people: each file of a folder here is one kind of the package of that name, for tests to add to it."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mini_tf.recipe import kinds

FOLDER = Path(__file__).parent


def words(package: str) -> list[str]:
    """Those of a package."""
    return sorted(file.stem for file in (FOLDER / package).glob("*.py"))


def made(package: str) -> dict[str, Any]:
    """The default settings of each kind of a package."""
    return {word: importlib.import_module(f"strangers.{package}.{word}").Settings() for word in words(package)}


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The packages have these kinds too, as if their files lay in them."""
    packages = [folder.name for folder in FOLDER.iterdir() if words(folder.name)]
    monkeypatch.setattr(kinds, "ROOTS", [*kinds.ROOTS, FOLDER])
    for package in packages:
        module = importlib.import_module(f"mini_tf.{package}")
        monkeypatch.setattr(module, "__path__", [*module.__path__, str(FOLDER / package)])
    kinds.listing.cache_clear()
    yield
    kinds.listing.cache_clear()
    for package in packages:
        for word in words(package):
            sys.modules.pop(f"mini_tf.{package}.{word}", None)

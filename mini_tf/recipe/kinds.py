"""Packages of kinds: every file of such a package is one choice, and the file's name is the word a recipe writes.

`mini_tf/attention/window.py` is `attention: {kind: window}`. Listing the folder is listing the choices; only the chosen
file is imported, here and nowhere else, and only after its word was found in the listing.
"""

import importlib
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, SerializeAsAny


class Section(BaseModel):
    """A part of a recipe: strict, frozen, every field with its meaning as the docstring below it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Kind(Section):
    """The settings of one kind; a subclass named `Settings` in each file of a package of kinds."""

    @property
    def kind(self) -> str:
        """The word a recipe writes: the name of the file the settings were defined in."""
        return type(self).__module__.rpartition(".")[2]


@cache
def listing(package: str) -> tuple[str, ...]:
    """The words of a package of kinds, sorted."""
    folder = Path(__file__).parents[1] / package
    return tuple(sorted(f.stem for f in folder.glob("*.py") if not f.stem.startswith("_")))


def settings_of(package: str, word: str) -> type[Kind]:
    """The `Settings` class behind a word; ValueError where the package has no such word."""
    if word not in listing(package):
        raise ValueError(f"no such kind {word!r}")
    return importlib.import_module(f"mini_tf.{package}.{word}").Settings  # type: ignore[no-any-return]

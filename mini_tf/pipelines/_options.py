"""What the options of `generate` wish for: in place of what the recipe says, within the ranges of its keys."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from mini_tf.recipe.parsing.faults import faults_of
from mini_tf.recipe.sections import Generate
from mini_tf.system.errors import UsageFault

ROWS = 8
"""Texts that are answered together unless --batch-size says otherwise."""


def option(name: str) -> str:
    """An option as it is written: --top-k of "top_k"."""
    return "--" + name.replace("_", "-")


def one_line(text: str) -> str:
    """The text as a line that can be turned back: a backslash is written \\\\, a newline \\n."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def wished(wish: Generate, given: Mapping[str, Any]) -> Generate:
    """What a recipe says of `generate`, with the options in its place."""
    asked = {name: value for name, value in given.items() if name in Generate.model_fields}
    for name, value in asked.items():
        try:
            Generate(**{name: value})
        except ValidationError as error:
            raise UsageFault(f"{option(name)}: {faults_of(error)[0].message}") from None
    return wish.model_copy(update=asked)

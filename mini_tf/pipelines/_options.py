"""The options of `generate`: they replace settings of the recipe, within the ranges of its keys."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from mini_tf.recipe.parsing.schema_faults import faults_of
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


def noted(notes: Sequence[str]) -> dict[str, Any]:
    """The notes on a prompt as a part of its result; nothing where there are none."""
    return {"notes": [*notes]} if notes else {}


def with_options(generate: Generate, given: Mapping[str, Any]) -> Generate:
    """The recipe's settings, replaced by the options that were given."""
    replaced = {name: value for name, value in given.items() if name in Generate.model_fields}
    for name, value in replaced.items():
        try:
            Generate(**{name: value})
        except ValidationError as error:
            raise UsageFault(f"{option(name)}: {faults_of(error)[0].message}") from None
    return generate.model_copy(update=replaced)

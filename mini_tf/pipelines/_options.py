"""Options of `generate`: they replace settings of the recipe, within the ranges of its keys."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from mini_tf.recipe.parsing.schema_faults import faults_of
from mini_tf.recipe.sections import Generate
from mini_tf.system.errors import UsageFault

BATCH_SIZE = 8
"""Default of --batch-size."""


def option(name: str) -> str:
    """An option as typed on the command line: --top-k for "top_k"."""
    return "--" + name.replace("_", "-")


def one_line(text: str) -> str:
    """The text as one line, reversibly: a backslash becomes \\\\, a newline \\n."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def notes_entry(notes: Sequence[str]) -> dict[str, Any]:
    """The entry `notes` of a result; empty without notes."""
    return {"notes": [*notes]} if notes else {}


def with_options(generate: Generate, given: Mapping[str, Any]) -> Generate:
    """The recipe's settings, replaced by the given options; UsageFault for a value out of range."""
    replaced = {name: value for name, value in given.items() if name in Generate.model_fields}
    for name, value in replaced.items():
        try:
            Generate(**{name: value})
        except ValidationError as error:
            raise UsageFault(f"{option(name)}: {faults_of(error)[0].message}") from None
    return generate.model_copy(update=replaced)

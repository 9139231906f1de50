"""What the options of `generate` wish for: in place of what the recipe says, or not at all where the model has no use for them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mini_tf.cli.generate.lines import option
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.recipe.sections import Generate

BEAMS = ("num_beams", "length_penalty", "min_new_tokens", "no_repeat_ngram", "n_best")
"""Options that mean something to an encoder-decoder alone."""


def refuse_unfit(unfit: Iterable[str], why: str) -> None:
    """UsageFault for the first of the options that do not fit; `why` is said of it."""
    for name in unfit:
        raise UsageFault(f"{option(name)}: {why}", hint="leave it out")


def wish_of(wish: "Generate", given: dict[str, Any]) -> "Generate":
    """What a recipe says of `generate`, with the options in its place; their ranges are those of its keys."""
    from pydantic import ValidationError

    from mini_tf.recipe.parsing.faults import faults_of
    from mini_tf.recipe.sections import Generate

    asked = {name: value for name, value in given.items() if name in Generate.model_fields}
    for name, value in asked.items():
        try:
            Generate(**{name: value})
        except ValidationError as error:
            raise UsageFault(f"{option(name)}: {faults_of(error)[0].message}") from None
    return wish.model_copy(update=asked)

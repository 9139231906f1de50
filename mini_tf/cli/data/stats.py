"""`minitf data stats`: how much there is of a text, of pairs or of labelled examples, and what stands on both sides."""

from typing import TYPE_CHECKING

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.options import RECIPE

if TYPE_CHECKING:
    from mini_tf.data.datasets import TokenizedData
    from mini_tf.objectives import Objective
    from mini_tf.recipe.recipe import Recipe


@command
def stats(console: Console, arguments: RECIPE = None) -> None:
    """Documents, tokens, bytes, use of the vocabulary, the longest and shortest documents, what stands on both sides."""
    from mini_tf.training.evaluation import pack

    recipe, text, objective = open_recipe(console, arguments)
    packings = {side: pack(recipe, store, text.tokenizer, objective) for side, store in text.sides.items()}
    lines, result = recipe.objective.dataset().stats(text, packings)
    console.output("\n".join(lines), result=result | {"notes": text.notes})


def open_recipe(console: Console, arguments: list[str] | None) -> "tuple[Recipe, TokenizedData, Objective]":
    """The recipe, its data and its objective; what is notable of the data is said."""
    from mini_tf.data.opening import open_text
    from mini_tf.recipe.arguments import split_arguments
    from mini_tf.run.kind_sources import resolve

    recipe = resolve(*split_arguments(arguments or [])).recipe
    text = open_text(recipe.data, recipe.tokenizer, recipe.objective, console.say)
    for note in text.notes:
        console.say(note)
    return recipe, text, recipe.objective.build(text.tokenizer.vocabulary, text.labels)

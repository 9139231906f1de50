"""`minitf data stats`: sizes of the training and validation data."""

from typing import TYPE_CHECKING

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.options import RECIPE

if TYPE_CHECKING:
    from mini_tf.data.datasets import TokenizedData
    from mini_tf.objectives import Objective
    from mini_tf.recipe.recipe import Recipe


@command
def stats(console: Console, arguments: RECIPE = None) -> None:
    """Count documents, tokens, bytes, vocabulary use, lengths, and duplicates between the splits."""
    from mini_tf.training.evaluation import pack

    recipe, text, objective = open_recipe(console, arguments)
    packings = {side: pack(recipe, store, text.tokenizer, objective) for side, store in text.sides.items()}
    lines, result = recipe.objective.dataset().stats(text, packings)
    console.output("\n".join(lines), result=result | {"notes": text.notes})


def open_recipe(console: Console, arguments: list[str] | None) -> "tuple[Recipe, TokenizedData, Objective]":
    """The recipe, its data and its objective; prints notes on the data."""
    from mini_tf.data.opening import open_text
    from mini_tf.recipe.arguments import split_arguments
    from mini_tf.run.kind_sources import resolve

    recipe = resolve(*split_arguments(arguments or [])).recipe
    text = open_text(recipe.data, recipe.tokenizer, recipe.objective, console.say)
    for note in text.notes:
        console.say(note)
    return recipe, text, recipe.objective.build(text.tokenizer.vocabulary, text.labels)

"""`minitf data stats`: sizes of the training and validation data."""

from typing import TYPE_CHECKING

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.loading import resolve_arguments
from mini_tf.cli.terminal.options import RECIPE

if TYPE_CHECKING:
    from mini_tf.data.datasets import TokenizedData
    from mini_tf.objectives import Objective
    from mini_tf.recipe.recipe import Recipe


@command
def stats(console: Console, arguments: RECIPE = None) -> None:
    """Count documents, tokens, bytes, vocabulary use, lengths, and duplicates between the splits."""
    recipe, data, objective = open_recipe(console, arguments)
    from mini_tf.training.evaluation import pack

    packings = {split: pack(recipe, store, data.tokenizer, objective) for split, store in data.splits.items()}
    lines, result = recipe.objective.dataset().stats(data, packings)
    console.output("\n".join(lines), result=result | {"notes": data.notes})


def open_recipe(console: Console, arguments: list[str] | None) -> "tuple[Recipe, TokenizedData, Objective]":
    """The recipe, its data and its objective; prints notes on the data."""

    recipe = resolve_arguments(arguments).recipe
    from mini_tf.data.tokenized import open_data

    data = open_data(recipe.data, recipe.tokenizer, recipe.objective, console.say)
    for note in data.notes:
        console.say(note)
    return recipe, data, recipe.objective.build(data.tokenizer.vocabulary, data.labels)

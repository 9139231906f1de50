"""The text of a recipe, opened to be looked at."""

from typing import TYPE_CHECKING

from mini_tf.cli.terminal.console import Console

if TYPE_CHECKING:
    from mini_tf.data.opening import AnyText
    from mini_tf.recipe.recipe import Recipe


def open_recipe(console: Console, arguments: list[str] | None) -> "tuple[Recipe, AnyText]":
    """The recipe and its text; what is notable of it is said."""
    from mini_tf.data.opening import open_text
    from mini_tf.recipe.reading import read, split_arguments

    recipe = read(*split_arguments(arguments or [])).recipe
    text = open_text(recipe.data, recipe.tokenizer, recipe.objective, console.say)
    for note in text.notes:
        console.say(note)
    return recipe, text

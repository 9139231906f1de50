"""The text of a recipe, opened to be looked at."""

from typing import TYPE_CHECKING

from mini_tf.cli.console import Console

if TYPE_CHECKING:
    from mini_tf.recipe.recipe import Recipe
    from mini_tf.text.opening import AnyText


def open_recipe(console: Console, arguments: list[str] | None) -> "tuple[Recipe, AnyText]":
    """The recipe and its text; what is notable of it is said."""
    from mini_tf.recipe.reading import read, split_arguments
    from mini_tf.text.opening import open_text

    recipe = read(*split_arguments(arguments or [])).recipe
    text = open_text(recipe.data, recipe.tokenizer, recipe.objective, console.say)
    for note in text.notes:
        console.say(note)
    return recipe, text

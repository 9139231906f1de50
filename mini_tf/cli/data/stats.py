"""`minitf data stats`: sizes of the training and validation data."""

from typing import TYPE_CHECKING

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.loading import resolve_arguments
from mini_tf.cli.terminal.options import RECIPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mini_tf.data.datasets import TokenizedData
    from mini_tf.data.packing import Packing
    from mini_tf.objectives import Objective
    from mini_tf.recipe.recipe import Recipe


@command
def stats(console: Console, arguments: RECIPE = None) -> None:
    recipe, data, objective = open_recipe(console, arguments)
    from mini_tf.data.describing import format_columns
    from mini_tf.training.evaluation import pack

    packings = {split: pack(recipe, store, data.tokenizer, objective) for split, store in data.splits.items()}
    lines, result = recipe.objective.dataset().stats(data, packings)
    sources = _sources(recipe, packings)
    if sources:
        lines += ["", "sources, as read in the run:", *format_columns(sources)]
        result |= {"sources": sources}
    console.output("\n".join(lines), result=result | {"notes": data.notes})


def _sources(recipe: "Recipe", packings: "Mapping[str, Packing]") -> dict[str, dict[str, float]]:
    """Sizes, shares and epochs of the sources of a mixture, by name."""
    from mini_tf.data.mixture import Mixture
    from mini_tf.training.plan import MixturePlan, make_plan
    from mini_tf.training.schedule import horizon_of

    train = packings["train"]
    if not isinstance(train, Mixture):
        return {}
    plan = make_plan(recipe.train, train)
    assert isinstance(plan, MixturePlan)
    steps = horizon_of(recipe.train, plan.epoch_steps, train.n_rows * train.row_tokens).steps
    sources = {}
    for part, share in zip(train.parts, plan.shares.tolist(), strict=True):
        [size] = part.store.sources
        facts = {"documents": size.n_documents, "words": size.words, "tokens": len(part.store), "share of rows": share}
        read = {} if steps is None else {"epochs": steps * plan.batch_size * share / part.n_rows}
        sources[size.name] = facts | read
    return sources


def open_recipe(console: Console, arguments: list[str] | None) -> "tuple[Recipe, TokenizedData, Objective]":
    """The recipe, its data and its objective; prints notes on the data."""

    recipe = resolve_arguments(arguments).recipe
    from mini_tf.data.tokenized import open_data

    data = open_data(recipe.data, recipe.tokenizer, recipe.objective, console.say)
    for note in data.notes:
        console.say(note)
    return recipe, data, recipe.objective.build(data.tokenizer.vocabulary, data.labels)

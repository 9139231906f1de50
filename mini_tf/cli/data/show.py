"""`minitf data show`: rows as the model reads them, and what is predicted at each place."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mini_tf.cli.data.stats import open_recipe
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.options import RECIPE

if TYPE_CHECKING:
    from mini_tf.data.batch import Rows
    from mini_tf.data.packing import Packing
    from mini_tf.recipe.recipe import Recipe


@command
def show(
    console: Console,
    arguments: RECIPE = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="How many rows.")] = 1,
    split: Annotated[Literal["train", "val"], typer.Option("--split", help="Which side of the text.")] = "train",
) -> None:
    """The first rows of the first step, or of the held-out text: sources, inputs, targets, labels, document borders."""
    from mini_tf.training.evaluation import pack

    recipe, text, objective = open_recipe(console, arguments)
    packing, dataset = pack(recipe, text.sides[split], text.tokenizer, objective), recipe.objective.dataset()
    numbers, chosen, n_rows = _choose(recipe, packing, split, rows)
    batch = objective.prepare(chosen)
    shown = [{"row": n} | dataset.shown(text, chosen, batch, row, split == "train") for row, n in enumerate(numbers)]
    sees = _sees(recipe, split)
    result = {"split": split, "objective": recipe.objective.kind, "pack": packing.pack, "sees": sees, "n_rows": n_rows, "rows": shown}
    head = f"{split}, {recipe.objective.kind}, {dataset.ROW.format(pack=packing.pack)}: {sees}"
    tables = ("\n".join(dataset.table(row, f"row {row['row']} of {n_rows} (counted from 0)")) for row in shown)
    console.answer("\n\n".join([head, *tables]), result=result)


def _sees(recipe: "Recipe", split: str) -> str:
    """Who sees whom, in words: the direction, the borders, and what a mixer of the stack leaves out of that."""
    border = "its row" if recipe.data.pack != "docs" else "its document within the row"
    before = ", and earlier rows of the stream" if recipe.train.stream and split == "train" else ""
    direction = recipe.objective.direction(recipe.model)
    assert direction is not None, "the recipe was checked"
    return recipe.model.attends(border + before, direction)


def _choose(recipe: "Recipe", packing: "Packing", split: str, n: int) -> "tuple[list[int], Rows, int]":
    """The numbers (from 0) of the first `n` rows that are read, the rows, and how many there are of them."""
    from mini_tf.training.plan import plan_of

    if split == "val":
        found = next(iter(packing.eval_rows(n)))
        return list(range(len(found))), found, len(packing.held_out_tokens)
    step = plan_of(recipe.train, packing).rows(0)
    first = step.epochs == step.epochs[0]
    numbers = step.rows[first][:n]
    return [int(i) for i in numbers], packing.take(numbers, int(step.epochs[0]), step.keys[first][:n]), packing.n_rows

"""`minitf data show`: prints rows with the input and the target of each position."""

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
    rows: Annotated[int, typer.Option("--rows", min=1, help="Number of rows.")] = 1,
    split: Annotated[Literal["train", "val"], typer.Option("--split", help="Training or validation split.")] = "train",
) -> None:
    """Print the first rows of the first step, or of the validation split: inputs, targets, documents, sources."""
    from mini_tf.training.evaluation import pack

    recipe, data, objective = open_recipe(console, arguments)
    packing, dataset = pack(recipe, data.splits[split], data.tokenizer, objective), recipe.objective.dataset()
    indices, first_rows, n_rows = _first_rows(recipe, packing, split, rows)
    batch = objective.prepare(first_rows)
    numbered = [
        {"row": n, "documents": documents} for n, documents in zip(indices, _documents(recipe, packing, split, indices), strict=True)
    ]
    shown = [one | dataset.describe_row(data, first_rows, batch, row, split == "train") for row, one in enumerate(numbered)]
    attends = _attends(recipe, split)
    result = {"split": split, "objective": recipe.objective.kind, "pack": packing.pack, "sees": attends, "n_rows": n_rows, "rows": shown}
    head = f"{split}, {recipe.objective.kind}, {dataset.ROW.format(pack=packing.pack)}: {attends}"
    unit = dataset.UNIT.removesuffix("s")
    heads = (f"row {row['row']} of {n_rows} (counted from 0){_listed(unit, row['documents'])}" for row in shown)
    tables = ("\n".join(dataset.row_table(row, head)) for row, head in zip(shown, heads, strict=True))
    console.answer("\n\n".join([head, *tables]), result=result)


def _attends(recipe: "Recipe", split: str) -> str:
    """A description of the attention mask: the direction, the document borders, and the limits of mixers."""
    border = "its row" if recipe.data.pack != "docs" else "its document within the row"
    before = ", and earlier rows of the stream" if recipe.train.stream and split == "train" else ""
    direction = recipe.objective.direction(recipe.model)
    assert direction is not None, "reading a recipe checks the direction"
    return recipe.model.attends(border + before, direction)


def _documents(recipe: "Recipe", packing: "Packing", split: str, indices: "list[int]") -> list[list[int]]:
    """The documents, or examples, in each row, by their number in the split, from 1."""
    import numpy as np

    from mini_tf.training.plan import plan_of

    epoch = 0 if split == "val" else int(plan_of(recipe.train, packing).rows(0).epochs[0])
    return [(packing.documents(np.array([index]), epoch) + 1).tolist() for index in indices]


def _listed(unit: str, numbers: "list[int]") -> str:
    if not numbers:
        return ""
    return f", {unit} {numbers[0]}" if len(numbers) == 1 else f", {unit}s {numbers[0]} to {numbers[-1]}"


def _first_rows(recipe: "Recipe", packing: "Packing", split: str, n: int) -> "tuple[list[int], Rows, int]":
    """The indices of the first `n` rows that are read, the rows, and the number of all rows."""
    from mini_tf.training.plan import plan_of

    if split == "val":
        rows = next(iter(packing.eval_rows(n)))
        return list(range(len(rows))), rows, len(packing.eval_row_tokens)
    step = plan_of(recipe.train, packing).rows(0)
    first = step.epochs == step.epochs[0]
    indices = step.rows[first][:n]
    return [int(i) for i in indices], packing.take(indices, int(step.epochs[0]), step.keys[first][:n]), packing.n_rows

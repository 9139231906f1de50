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
    numbered = [
        {"row": n, "documents": documents} for n, documents in zip(numbers, _documents(recipe, packing, split, numbers), strict=True)
    ]
    shown = [one | dataset.shown(text, chosen, batch, row, split == "train") for row, one in enumerate(numbered)]
    sees = _sees(recipe, split)
    result = {"split": split, "objective": recipe.objective.kind, "pack": packing.pack, "sees": sees, "n_rows": n_rows, "rows": shown}
    head = f"{split}, {recipe.objective.kind}, {dataset.ROW.format(pack=packing.pack)}: {sees}"
    unit = dataset.UNIT.removesuffix("s")
    heads = (f"row {row['row']} of {n_rows} (counted from 0){_listed(unit, row['documents'])}" for row in shown)
    tables = ("\n".join(dataset.table(row, head)) for row, head in zip(shown, heads, strict=True))
    console.answer("\n\n".join([head, *tables]), result=result)


def _sees(recipe: "Recipe", split: str) -> str:
    """Who sees whom, in words: the direction, the borders, and what a mixer of the stack leaves out of that."""
    border = "its row" if recipe.data.pack != "docs" else "its document within the row"
    before = ", and earlier rows of the stream" if recipe.train.stream and split == "train" else ""
    direction = recipe.objective.direction(recipe.model)
    assert direction is not None, "the recipe was checked"
    return recipe.model.attends(border + before, direction)


def _documents(recipe: "Recipe", packing: "Packing", split: str, numbers: "list[int]") -> list[list[int]]:
    """Of each row the documents, or examples, that it has tokens of, by their numbers from 1 on their side of the split."""
    import numpy as np

    from mini_tf.training.plan import make_plan

    epoch = 0 if split == "val" else int(make_plan(recipe.train, packing).rows(0).epochs[0])
    return [(packing.documents(np.array([number]), epoch) + 1).tolist() for number in numbers]


def _listed(unit: str, numbers: "list[int]") -> str:
    if not numbers:
        return ""
    return f", {unit} {numbers[0]}" if len(numbers) == 1 else f", {unit}s {numbers[0]} to {numbers[-1]}"


def _choose(recipe: "Recipe", packing: "Packing", split: str, n: int) -> "tuple[list[int], Rows, int]":
    """The numbers (from 0) of the first `n` rows that are read, the rows, and how many there are of them."""
    from mini_tf.training.plan import make_plan

    if split == "val":
        found = next(iter(packing.eval_rows(n)))
        return list(range(len(found))), found, len(packing.held_out_tokens)
    step = make_plan(recipe.train, packing).rows(0)
    first = step.epochs == step.epochs[0]
    numbers = step.rows[first][:n]
    return [int(i) for i in numbers], packing.take(numbers, int(step.epochs[0]), step.keys[first][:n]), packing.n_rows

"""`minitf data show`: rows as the model reads them, with the target at each position."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mini_tf.cli.data.stats import open_recipe
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.options import RECIPE

if TYPE_CHECKING:
    from mini_tf.data.batch import Rows
    from mini_tf.data.packing import Packing
    from mini_tf.recipe.kind_settings.directions import Direction
    from mini_tf.recipe.recipe import Recipe


@command
def show(
    console: Console,
    arguments: RECIPE = None,
    rows: Annotated[int, typer.Option("--rows", min=1, metavar="N", help="Number of rows.")] = 1,
    split: Annotated[
        Literal["train", "val"], typer.Option("--split", metavar="train|val", help="Training or validation data.")
    ] = "train",
) -> None:
    recipe, data, objective = open_recipe(console, arguments)
    from mini_tf.training.evaluation import pack

    packing, dataset = pack(recipe, data.splits[split], data.tokenizer, objective), recipe.objective.dataset()
    numbers, first_rows, n_rows = _first_rows(recipe, packing, split, rows)
    batch = objective.prepare(first_rows)
    numbered: list[dict[str, Any]] = [
        {"row": n, "documents": documents}
        for n, documents in zip(numbers, _documents(recipe, packing, split, numbers), strict=True)
    ]
    shown = [
        one | dataset.describe_row(data, first_rows, batch, row, split == "train") for row, one in enumerate(numbered)
    ]
    attention = _describe_attention(recipe, split)
    result = {
        "split": split,
        "objective": recipe.objective.kind,
        "pack": packing.pack,
        "sees": attention,
        "n_rows": n_rows,
        "rows": shown,
    }
    head = f"{split}, {recipe.objective.kind}, {dataset.ROW.format(pack=packing.pack)}: {attention}"
    unit = dataset.UNIT.removesuffix("s")
    heads = (f"row {row['row']} of {n_rows} (counted from 0){_listed(unit, row['documents'])}" for row in shown)
    tables = ("\n".join(dataset.row_table(row, head)) for row, head in zip(shown, heads, strict=True))
    console.output("\n\n".join([head, *tables]), result=result)


def _describe_attention(recipe: "Recipe", split: str) -> str:
    """The attention mask in words: direction, borders and limits of the attention mixers."""
    border = recipe.objective.dataset().BORDER if recipe.data.pack != "docs" else "its document within the row"
    before = ", and earlier rows of the stream" if recipe.train.stream and split == "train" else ""
    direction = recipe.objective.direction(recipe.model)
    assert direction is not None, "the recipe was checked"
    if not recipe.objective.CAUSAL_PROMPTS:
        return recipe.model.describe_attention(border + before, direction)
    rows: tuple[tuple[Direction, str], ...] = (("causal", "causal rows"), ("bidirectional", "masked rows"))
    parts = (f"{recipe.model.describe_attention(border, of_rows)} ({name})" for of_rows, name in rows)
    return "; ".join(parts)


def _documents(recipe: "Recipe", packing: "Packing", split: str, numbers: "list[int]") -> list[list[int]]:
    """For each row the numbers (from 1, within the split) of the documents or examples it contains."""
    import numpy as np

    from mini_tf.training.plan import make_plan

    epoch = 0 if split == "val" else int(make_plan(recipe.train, packing).rows(0).epochs[0])
    return [(packing.documents(np.array([number]), epoch) + 1).tolist() for number in numbers]


def _listed(unit: str, numbers: "list[int]") -> str:
    if not numbers:
        return ""
    return f", {unit} {numbers[0]}" if len(numbers) == 1 else f", {unit}s {numbers[0]} to {numbers[-1]}"


def _first_rows(recipe: "Recipe", packing: "Packing", split: str, n: int) -> "tuple[list[int], Rows, int]":
    """Numbers (from 0) of the first `n` rows, these rows, and the total number of rows."""
    from mini_tf.training.plan import make_plan

    if split == "val":
        rows = next(iter(packing.eval_rows(n)))
        return list(range(len(rows))), rows, len(packing.eval_row_tokens)
    step = make_plan(recipe.train, packing).rows(0)
    first = step.epochs == step.epochs[0]
    numbers = step.rows[first][:n]
    return [int(i) for i in numbers], packing.take(numbers, int(step.epochs[0]), step.keys[first][:n]), packing.n_rows

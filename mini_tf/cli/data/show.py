"""`minitf data show`: rows as the model reads them, and what is asked at each place."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mini_tf.cli.data.places import asked_of, labelled, read_of
from mini_tf.cli.data.reading import open_recipe
from mini_tf.cli.data.tables import label_table, pair_table, table
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.options import RECIPE

if TYPE_CHECKING:
    from mini_tf.data.batch import Rows
    from mini_tf.recipe.recipe import Recipe
    from mini_tf.training.evaluation import AnyRows


_ROWS = {"text": "pack PACK", "pairs": "pairs"}
"""What a row is of each form of data; PACK stands for the word of the recipe."""


@command
def show(
    console: Console,
    arguments: RECIPE = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="How many rows.")] = 1,
    split: Annotated[Literal["train", "val"], typer.Option("--split", help="Which side of the text.")] = "train",
) -> None:
    """The first rows of the first step, or of the held-out text: sources, inputs, targets, labels, document borders."""
    from mini_tf.training.evaluation import pack

    recipe, text = open_recipe(console, arguments)
    objective, form = recipe.objective.build(text.tokenizer.vocabulary, text.labels), recipe.objective.FORM
    packing = pack(recipe, text.train if split == "train" else text.val, text.tokenizer, objective)
    numbers, chosen, n_rows = _choose(recipe, packing, split, rows)
    batch = objective.prepare(chosen)
    if form in ("classes", "numbers", "tags"):
        assert text.labels is not None
        # Nothing is hidden from a model that is judged.
        read = batch.draws["ids"].numpy() if split == "train" and "ids" in batch.draws else chosen.ids
        shown = [{"row": number} | labelled(text.tokenizer, text.labels, chosen, read[row], row) for row, number in enumerate(numbers)]
    else:
        shown = [asked_of(text.tokenizer, chosen, batch, row, number) for row, number in enumerate(numbers)]
    if chosen.source is not None:
        shown = [row | {"source": read_of(text.source_tokenizer, chosen.source, n)} for n, row in enumerate(shown)]
    sees = _sees(recipe, split)
    result = {"split": split, "objective": recipe.objective.kind, "pack": packing.pack, "sees": sees, "n_rows": n_rows, "rows": shown}
    head = f"{split}, {recipe.objective.kind}, {_ROWS.get(form, 'one example a row')}: {sees}".replace("PACK", packing.pack)
    drawn = {"text": table, "pairs": pair_table, "turns": table}.get(form, label_table)
    console.answer("\n\n".join([head, *(drawn(row, n_rows) for row in shown)]), result=result)


def _sees(recipe: "Recipe", split: str) -> str:
    """Who sees whom, in words: the direction, the borders, and what a mixer of the stack leaves out of that."""
    border = "its row" if recipe.data.pack != "docs" else "its document within the row"
    before = ", and earlier rows of the stream" if recipe.train.stream and split == "train" else ""
    direction = recipe.objective.direction(recipe.model)
    assert direction is not None, "the recipe was checked"
    return recipe.model.attends(border + before, direction)


def _choose(recipe: "Recipe", packing: "AnyRows", split: str, n: int) -> "tuple[list[int], Rows, int]":
    """The numbers (from 0) of the first `n` rows that are read, the rows, and how many there are of them."""
    from mini_tf.training.plan import plan_of

    if split == "val":
        found = next(iter(packing.eval_rows(n)))
        windows = -(-(len(packing.store) - packing.lookahead) // packing.context)
        return list(range(len(found))), found, packing.n_rows if packing.pack == "none" else windows
    step = plan_of(recipe.train, packing).rows(0)
    first = step.epochs == step.epochs[0]
    numbers = step.rows[first][:n]
    return [int(i) for i in numbers], packing.take(numbers, int(step.epochs[0]), step.keys[first][:n]), packing.n_rows

"""`minitf data`: show (rows as the model reads them), stats, check (all faults of the files of a recipe)."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.loading import resolve_arguments
from mini_tf.cli.terminal.options import RECIPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mini_tf.data.batch import Rows
    from mini_tf.data.datasets import TokenizedData
    from mini_tf.data.describing import DataReport
    from mini_tf.data.packing import Packing
    from mini_tf.objectives import Objective
    from mini_tf.recipe.kind_settings import Direction
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
    documents = _documents(recipe, packing, split, numbers)
    shown: list[dict[str, Any]] = [
        {"row": number, "documents": documents[row]}
        | dataset.describe_row(data, first_rows, batch, row, split == "train")
        for row, number in enumerate(numbers)
    ]
    attention, kind = _describe_attention(recipe, split), recipe.objective.kind
    result = {"split": split, "objective": kind, "pack": packing.pack, "sees": attention, "n_rows": n_rows}
    result |= {"rows": shown}
    head = f"{split}, {kind}, {dataset.ROW.format(pack=packing.pack)}: {attention}"
    unit = dataset.UNIT.removesuffix("s")
    tables = []
    for row in shown:
        title = f"row {row['row']} of {n_rows} (counted from 0){_listed(unit, row['documents'])}"
        tables.append("\n".join(dataset.row_table(row, title)))
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


@command
def check(
    console: Console,
    arguments: RECIPE = None,
    faults: Annotated[int, typer.Option("--faults", min=1, metavar="N", help="Print at most N faults.")] = 20,
) -> None:
    from mini_tf.system.errors import DataFault

    recipe = resolve_arguments(arguments).recipe
    from mini_tf.data.describing import check_data

    report = check_data(recipe.objective.dataset(), recipe.data, faults)
    n, messages, result = report.faults.count, report.faults.messages, _result(report)
    if n:
        console.output(result=result)
        hint = f"{n:,} faults, {len(messages)} printed; --faults {n} prints all" if n > len(messages) else None
        where = [message.split(": ")[0] for message in messages]
        raise DataFault(messages[0], hint=hint, where=where, faults=messages)
    lengths = _lengths(console, recipe)
    for split, measured in lengths.items():
        result[split] |= measured
    console.output("\n".join(_table(recipe, report, lengths)), result=result)


def _result(report: "DataReport") -> dict[str, Any]:
    splits = {
        split: {
            "examples": counts.examples,
            "characters": counts.characters,
            "repeated": counts.duplicates,
            "labels": dict(counts.classes.most_common()),
        }
        for split, counts in report.splits.items()
    }
    return {"faults": report.faults.count, **splits, "known_twice": report.n_val_in_train}


def _lengths(console: Console, recipe: "Recipe") -> dict[str, dict[str, int]]:
    """Lengths in tokens; DataFault if a text has no tokens."""
    from mini_tf.data.describing import length_report
    from mini_tf.data.tokenized import open_data
    from mini_tf.training.evaluation import pack

    data = open_data(recipe.data, recipe.tokenizer, recipe.objective, console.detail)
    for note in data.notes:
        console.say(note)
    objective = recipe.objective.build(data.tokenizer.vocabulary, data.labels)
    return {
        split: length_report(pack(recipe, store, data.tokenizer, objective)) for split, store in data.splits.items()
    }


def _table(recipe: "Recipe", report: "DataReport", lengths: "dict[str, dict[str, int]]") -> list[str]:
    from mini_tf.data.describing import format_columns
    from mini_tf.drawing.labels import caption

    dataset, context = recipe.objective.dataset(), recipe.train.context
    columns = {
        split: {
            dataset.UNIT: counts.examples,
            "characters": counts.characters,
            "duplicates": counts.duplicates,
            "longest (tokens)": lengths[split]["longest"],
            "longer than the context": lengths[split]["longer"],
        }
        for split, counts in report.splits.items()
    }
    lines, classes = format_columns(columns), report.splits["train"].classes
    if names := [name for name, _ in classes.most_common(50)]:
        class_counts = {
            split: {caption(name): counts.classes[name] for name in names} for split, counts in report.splits.items()
        }
        lines += ["", *format_columns(class_counts)]
        if (more := len(classes) - len(names)) > 0:
            lines.append(f"and {more:,} more labels; --json lists all")
    split_off = f"; validation data is split off data.train ({recipe.data.split})"
    lines += ["", f"no faults{split_off if recipe.data.val is None else ''}"]
    if n := report.n_val_in_train:
        lines.append(f"{n:,} {dataset.UNIT} of data.val are also in data.train; training removes them from val")
    if dataset.TRUNCATES and any(measured["longer"] for measured in lengths.values()):
        lines.append(
            f"{dataset.UNIT} longer than train.context {context} with their separators are truncated: they lose their"
            f" {dataset.TRUNCATES}"
        )
    return lines

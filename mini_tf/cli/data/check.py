"""`minitf data check`: all faults of the data files of a recipe."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.loading import resolve_arguments
from mini_tf.cli.terminal.options import RECIPE

if TYPE_CHECKING:
    from mini_tf.data.describing import DataReport
    from mini_tf.recipe.recipe import Recipe


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
    found, result = report.faults, _result(report)
    if found.count:
        console.output(result=result)
        more = f"{found.count:,} faults, {len(found.messages)} printed; --faults {found.count} prints all"
        raise DataFault(
            found.messages[0],
            hint=more if found.count > len(found.messages) else None,
            where=[message.split(": ")[0] for message in found.messages],
            faults=found.messages,
        )
    lengths = _lengths(console, recipe)
    for split, measured in lengths.items():
        result[split] |= measured
    console.output("\n".join(_table(recipe, report, lengths)), result=result)


def _result(report: "DataReport") -> dict[str, Any]:
    splits = {
        split: {
            "examples": one.examples,
            "characters": one.characters,
            "repeated": one.duplicates,
            "labels": dict(one.classes.most_common()),
        }
        for split, one in report.splits.items()
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
    counts = {
        split: {
            dataset.UNIT: one.examples,
            "characters": one.characters,
            "duplicates": one.duplicates,
            "longest (tokens)": lengths[split]["longest"],
            "longer than the context": lengths[split]["longer"],
        }
        for split, one in report.splits.items()
    }
    lines, classes = format_columns(counts), report.splits["train"].classes
    if names := [name for name, _ in classes.most_common(50)]:
        lines += [
            "",
            *format_columns(
                {split: {caption(name): one.classes[name] for name in names} for split, one in report.splits.items()}
            ),
        ]
        if (more := len(classes) - len(names)) > 0:
            lines.append(f"and {more:,} more labels; --json lists all")
    lines += [
        "",
        "no faults"
        + ("" if recipe.data.val is not None else f"; validation data is split off data.train ({recipe.data.split})"),
    ]
    if n := report.n_val_in_train:
        lines.append(f"{n:,} {dataset.UNIT} of data.val are also in data.train; training removes them from val")
    if dataset.TRUNCATES and any(one["longer"] for one in lengths.values()):
        lines.append(
            f"{dataset.UNIT} longer than train.context {context} with their separators are truncated: they lose their"
            f" {dataset.TRUNCATES}"
        )
    return lines

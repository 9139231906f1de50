"""`minitf data check`: all faults of the data files of a recipe."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.options import RECIPE

if TYPE_CHECKING:
    from mini_tf.data.checking import Checked
    from mini_tf.recipe.recipe import Recipe


@command
def check(
    console: Console,
    arguments: RECIPE = None,
    faults: Annotated[int, typer.Option("--faults", min=1, metavar="N", help="Print at most N faults.")] = 20,
) -> None:
    """Read all rows of data.train and data.val and print their faults, or a summary.

    Exit code 4 if there are faults; otherwise sizes, labels, duplicates and lengths.
    """
    from mini_tf.data.checking import check as checked_by
    from mini_tf.recipe.arguments import split_arguments
    from mini_tf.run.kind_sources import resolve
    from mini_tf.system.errors import DataFault

    recipe = resolve(*split_arguments(arguments or [])).recipe
    checked = checked_by(recipe.objective.dataset(), recipe.data, faults)
    found, result = checked.faults, _result(checked)
    if found.n:
        console.output(result=result)
        more = f"{found.n:,} faults, {len(found.lines)} printed; --faults {found.n} prints all"
        raise DataFault(
            found.lines[0],
            hint=more if found.n > len(found.lines) else None,
            where=[line.split(": ")[0] for line in found.lines],
            faults=found.lines,
        )
    lengths = _lengths(console, recipe)
    for side, measured in lengths.items():
        result[side] |= measured
    console.output("\n".join(_table(recipe, checked, lengths)), result=result)


def _result(checked: "Checked") -> dict[str, Any]:
    sides = {
        side: {"examples": one.examples, "characters": one.characters, "repeated": one.repeated, "labels": dict(one.classes.most_common())}
        for side, one in checked.sides.items()
    }
    return {"faults": checked.faults.n, **sides, "known_twice": checked.known_twice}


def _lengths(console: Console, recipe: "Recipe") -> dict[str, dict[str, int]]:
    """Lengths in tokens; DataFault if a text has no tokens."""
    from mini_tf.data.checking import lengths
    from mini_tf.data.opening import open_text

    text = open_text(recipe.data, recipe.tokenizer, recipe.objective, console.detail)
    return {side: lengths(store, recipe.train.context) for side, store in text.sides.items()}


def _table(recipe: "Recipe", checked: "Checked", lengths: "dict[str, dict[str, int]]") -> list[str]:
    from mini_tf.data.describing import columns
    from mini_tf.drawing.labels import caption

    dataset, context = recipe.objective.dataset(), recipe.train.context
    figures = {
        side: {
            dataset.UNIT: one.examples,
            "characters": one.characters,
            "repeated": one.repeated,
            "longest (tokens)": lengths[side]["longest"],
            f"longer than {context} tokens": lengths[side]["longer"],
        }
        for side, one in checked.sides.items()
    }
    lines = columns(figures)
    if names := [name for name, _ in checked.sides["train"].classes.most_common(50)]:
        lines += ["", *columns({side: {caption(name): one.classes[name] for name in names} for side, one in checked.sides.items()})]
        if (left := len(checked.sides["train"].classes) - len(names)) > 0:
            lines.append(f"and {left:,} more labels; --json lists all")
    lines += ["", "no faults" + ("" if recipe.data.val is not None else f"; validation data is split off data.train ({recipe.data.split})")]
    if checked.known_twice:
        lines.append(f"{checked.known_twice:,} {dataset.UNIT} of data.val are also in data.train; training removes them from val")
    if dataset.CUTS and any(one["longer"] for one in lengths.values()):
        lines.append(f"{dataset.UNIT} longer than train.context {context} are truncated: they lose their {dataset.CUTS}")
    return lines

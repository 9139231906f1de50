"""`minitf finetune`: train a model on a task."""

import shlex
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast

import typer

from mini_tf.cli.pretrain import training_command
from mini_tf.cli.terminal.completion import recipe_arguments
from mini_tf.cli.terminal.options import RECIPE_HELP
from mini_tf.recipe.values import one_line
from mini_tf.system.errors import UsageFault

TASK_RECIPE = Annotated[
    list[str] | None,
    typer.Argument(metavar="RECIPE [KEY=VALUE ...]", help=RECIPE_HELP, autocompletion=recipe_arguments),
]


def _check_arguments(recipe: str | None, overrides: list[str]) -> None:
    """UsageFault with the command to give instead, where there is no recipe, or a run whose weights are not used."""
    from mini_tf.recipe.arguments import data_overrides
    from mini_tf.run.finding import is_run
    from mini_tf.run.identity import run_of

    data, given = data_overrides(overrides), {override.partition("=")[0] for override in overrides}
    if recipe is None:
        _refuse_without_recipe(overrides, data)
    if data and "model.init_from" not in given and is_run(Path(run_of(recipe) or "")):
        other = shlex.join([_task_of(data) or recipe, *overrides, f"model.init_from={recipe}"])
        raise UsageFault(
            f"{one_line(recipe)} is a run, whose recipe would train from scratch on these data",
            hint=f"`minitf finetune {other}` starts from its weights",
        )


def _refuse_without_recipe(overrides: list[str], data: list[str]) -> NoReturn:
    if not data:
        raise UsageFault(
            "no recipe given", hint=f"use a recipe file, or a shipped recipe for a task: {', '.join(task_recipes())}"
        )
    if (recipe := _task_of(data)) is None:
        raise UsageFault(
            "no recipe given; a task needs labeled data",
            hint="use a table with a text and a label in each row (csv, tsv, jsonl)",
        )
    ways = f"use `minitf finetune {shlex.join([recipe, *overrides])}`; for other tasks: {', '.join(task_recipes())}"
    raise UsageFault("no recipe given", hint=ways)


def _task_of(data: list[str]) -> str | None:
    """The shipped recipe that such tables are probably for; None if one is a text."""
    from mini_tf.recipe.data import FORMATS

    formats = {FORMATS.get(Path(name).suffix.lower(), "txt") for name in data}
    if "txt" in formats:
        return None
    return "wnut17-nano" if formats <= {"conll", "conllu"} else "sst2-nano"


def task_recipes() -> list[str]:
    """The shipped recipes whose objective is a task."""
    import yaml

    from mini_tf.recipe.arguments import presets
    from mini_tf.recipe.kinds import kinds_of, settings_of

    given = {
        name: yaml.safe_load(file.read_text(encoding="utf-8")).get("objective") for name, file in presets().items()
    }
    words = {
        name: objective.get("kind") if isinstance(objective, dict) else objective for name, objective in given.items()
    }
    objectives: dict[str, Any] = kinds_of("objectives")
    tasks = {
        word
        for word, objective in objectives.items()
        if not cast("Any", settings_of("data.datasets", objective.DATASET)).STREAM
    }
    return [name for name, word in words.items() if word in tasks]


finetune = training_command(
    "finetune",
    """Train a model on a task, from a pretrained run or from scratch.

    model.init_from=RUN initializes the weights from a run. Tasks: classify, regress, tag, seq2seq, instruct. The same
    command continues an interrupted run.
    """,
    TASK_RECIPE,
    _check_arguments,
)

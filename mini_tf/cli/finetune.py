"""`minitf finetune`: train a model on a task."""

from typing import Annotated, Any, NoReturn, cast

import typer

from mini_tf.cli.pretrain import training_command
from mini_tf.cli.terminal.completion import recipe_arguments
from mini_tf.cli.terminal.options import RECIPE_HELP

TASK_RECIPE = Annotated[
    list[str] | None,
    typer.Argument(metavar="RECIPE [KEY=VALUE ...]", help=RECIPE_HELP, autocompletion=recipe_arguments),
]


def _refuse_without_recipe(overrides: list[str]) -> NoReturn:
    """UsageFault with the command to give instead, where the data is a table."""
    import shlex
    from pathlib import Path

    from mini_tf.recipe.arguments import data_overrides
    from mini_tf.recipe.data import FORMATS
    from mini_tf.system.errors import UsageFault

    if data := data_overrides(overrides):
        formats = {FORMATS.get(Path(name).suffix.lower(), "txt") for name in data}
        if "txt" in formats:
            raise UsageFault(
                "no recipe given; a task needs labeled data",
                hint="use a table with a text and a label in each row (csv, tsv, jsonl)",
            )
        recipe = "wnut17-nano" if formats <= {"conll", "conllu"} else "sst2-nano"
        ways = f"use `minitf finetune {shlex.join([recipe, *overrides])}`; for other tasks: {', '.join(task_recipes())}"
        raise UsageFault("no recipe given", hint=ways)
    raise UsageFault(
        "no recipe given", hint=f"use a recipe file, or a shipped recipe for a task: {', '.join(task_recipes())}"
    )


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
    _refuse_without_recipe,
)

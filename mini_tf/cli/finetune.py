"""`minitf finetune`: a model that learns a task, from another run's weights or from scratch."""

from typing import Annotated, NoReturn

import typer

from mini_tf.cli.training import training_command

TASK_RECIPE = Annotated[
    list[str] | None,
    typer.Argument(metavar="RECIPE [KEY=VALUE ...]", help="A preset, a file or a run, and what to change."),
]


def _ask_for_recipe(overrides: list[str]) -> NoReturn:
    """UsageFault: with the command to give, where the data are tables."""
    import shlex
    from pathlib import Path

    from mini_tf.recipe.arguments import data_overrides
    from mini_tf.recipe.data import FORMATS
    from mini_tf.system.errors import UsageFault

    if data := data_overrides(overrides):
        formats = {FORMATS.get(Path(name).suffix.lower(), "txt") for name in data}
        if "txt" in formats:
            raise UsageFault(
                "which task? give a recipe; a task needs labels", hint="a table with a text and a label in each row (csv, tsv, jsonl)"
            )
        recipe = "wnut17-nano" if formats <= {"conll", "conllu"} else "sst2-nano"
        ways = f"`minitf finetune {shlex.join([recipe, *overrides])}`; for other tasks: {', '.join(task_recipes())}"
        raise UsageFault("which task? give a recipe", hint=ways)
    raise UsageFault("which task? give a recipe", hint=f"shipped for tasks: {', '.join(task_recipes())}; or a file of yours")


def task_recipes() -> list[str]:
    """The shipped recipes that name an objective by its word, which is a task."""
    import yaml

    from mini_tf.recipe.kinds import kinds_of
    from mini_tf.recipe.presets import presets

    given = {name: yaml.safe_load(file.read_text(encoding="utf-8")).get("objective") for name, file in presets().items()}
    words = {name: objective.get("kind") if isinstance(objective, dict) else objective for name, objective in given.items()}
    tasks = {word for word, settings in kinds_of("objectives").items() if getattr(settings, "TASK", False)}
    return [name for name, word in words.items() if word in tasks]


finetune = training_command(
    "finetune",
    "Train a model on a task, from a run (model.init_from=RUN) or from scratch. The same command continues an interrupted run.",
    TASK_RECIPE,
    _ask_for_recipe,
)

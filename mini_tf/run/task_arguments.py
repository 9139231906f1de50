"""What `finetune` needs to be given, checked before anything is read."""

import shlex
from pathlib import Path
from typing import NoReturn

from mini_tf.recipe.arguments import data_overrides
from mini_tf.recipe.data import FORMATS
from mini_tf.recipe.task_recipes import task_recipes
from mini_tf.recipe.values import one_line
from mini_tf.run.finding import is_run
from mini_tf.run.identity import run_of
from mini_tf.system.errors import UsageFault


def check_task_arguments(recipe: str | None, overrides: list[str]) -> None:
    """UsageFault with the command to give instead, where there is no recipe, or a run whose weights are not used."""
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
    formats = {FORMATS.get(Path(name).suffix.lower(), "txt") for name in data}
    if "txt" in formats:
        return None
    return "wnut17-nano" if formats <= {"conll", "conllu"} else "sst2-nano"

"""`minitf finetune`: train a model on a task."""

import sys
from typing import Annotated

import typer

from mini_tf.cli.pretrain import training_command
from mini_tf.cli.terminal.completion import recipe_arguments
from mini_tf.cli.terminal.options import RECIPE_HELP

TASK_RECIPE = Annotated[
    list[str] | None,
    typer.Argument(metavar="RECIPE [KEY=VALUE ...]", help=RECIPE_HELP, autocompletion=recipe_arguments),
]


def _check_arguments(recipe: str | None, overrides: list[str]) -> None:
    from mini_tf.run.task_arguments import check_task_arguments

    check_task_arguments(recipe, overrides, sys.argv[2:])


finetune = training_command("finetune", TASK_RECIPE, _check_arguments)

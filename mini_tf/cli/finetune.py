"""`minitf finetune`: a model that learns a task, from another run's weights or from scratch."""

from typing import Annotated, NoReturn

import typer

from mini_tf.cli.training import training_command

TASKS = ("classify", "tag", "regress", "seq2seq", "instruct")
TASK_RECIPE = Annotated[
    list[str] | None,
    typer.Argument(metavar="RECIPE [KEY=VALUE ...]", help="A preset, a file or a run folder, and what to change."),
]


def _ask_for_recipe() -> NoReturn:
    from mini_tf.system.errors import UsageFault

    raise UsageFault("which task? give a recipe", hint=f"shipped for tasks: {', '.join(task_recipes())}; or a file of yours")


def task_recipes() -> list[str]:
    """The shipped recipes whose own text names one of TASKS as their objective; resolving them all would take torch."""
    import yaml

    from mini_tf.recipe.presets import presets

    found = []
    for name, file in presets().items():
        objective = yaml.safe_load(file.read_text(encoding="utf-8")).get("objective")
        if (objective.get("kind") if isinstance(objective, dict) else objective) in TASKS:
            found.append(name)
    return found


finetune = training_command(
    "finetune",
    "Train a model on a task, from a run (model.init_from=RUN) or from scratch. The same command continues an interrupted run.",
    TASK_RECIPE,
    _ask_for_recipe,
)

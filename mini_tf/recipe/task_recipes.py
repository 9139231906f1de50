"""The recipes of tasks, which `finetune` trains, and those of pretraining."""

from typing import Any, cast

import yaml

from mini_tf.recipe import arguments
from mini_tf.recipe.kinds import kinds_of, settings_of
from mini_tf.recipe.reading import Resolved


def task_recipes() -> list[str]:
    """The shipped recipes whose objective is a task."""
    given = {
        name: yaml.safe_load(file.read_text(encoding="utf-8")).get("objective")
        for name, file in arguments.presets().items()
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


def command_warning(command: str, resolved: Resolved) -> str | None:
    """A warning where the recipe belongs to the other command; both train the same."""
    recipe, shown = resolved.recipe, resolved.name
    if command == "finetune" and recipe.objective.dataset().STREAM and recipe.model.init_from is None:
        return (
            f"{shown} trains from scratch, as `minitf pretrain {shown}` does; model.init_from=RUN starts from the"
            " weights of a run"
        )
    if command == "pretrain" and not recipe.objective.dataset().STREAM and "tokens" not in recipe.objective.PREDICTS:
        return f"{shown} is a task recipe; its command is `minitf finetune {shown}`, which does the same"
    return None

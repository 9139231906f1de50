"""cost: how far the time that `minitf cost` foretells is from the time that the same run then takes, as a share of
it.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from .contest import Contest, Goal, Options, Side, answer, module
from .peers import MINITF, missing_command
from .processes import run, temporary_folder
from .texts import text_of

RUNS = {"gpt-char": ["data.split=tail 10%", "train.steps=400"], "bert-nano": ["train.steps=60"]}
"""Recipes and what is changed in them, so that a run takes seconds, not minutes."""


def contests(options: Options) -> Iterator[Contest]:
    missing = missing_command("cost")
    for recipe, words in RUNS.items():
        own = Side(
            f"minitf cost {recipe}", module("cost", recipe, f"data.train={text_of(options)}", *words), missing, own=True
        )
        goals = {own.name: Goal(0.15)}
        yield Contest(f"cost {recipe}", "of the real time", [own], goals, more=False, tell=("foretold", "real"))


def measure(recipe: str, *words: str) -> dict[str, Any]:
    with temporary_folder() as folder:
        foretold = json.loads(run([*MINITF, "cost", recipe, *words, "--json"], folder).stdout)["metrics"]["seconds"]
        real = run([*MINITF, "pretrain", recipe, *words, "-d", str(folder / "run")], folder).seconds
    return {"value": abs(foretold / real - 1), "foretold": foretold, "real": real}


if __name__ == "__main__":
    answer(measure, sys.argv[1:])

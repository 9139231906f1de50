"""When evaluation, saving and a line in the log are due: at steps, or where the clock decides at shares of the time."""

import math

from mini_tf.recipe.recipe import Recipe
from mini_tf.training.loop import Report
from mini_tf.training.schedule import Horizon

EVALUATIONS = 10
"""Evaluations of a run where the recipe leaves it to us."""
LINES = 30
"""Ordinary lines of a run's log."""


class Due:
    """Asked after every step."""

    def __init__(self, recipe: Recipe, horizon: Horizon) -> None:
        self.recipe, self.horizon = recipe, horizon
        self._passed: dict[str, int] = {}

    def evaluation(self, report: Report) -> bool:
        return self._at("evaluation", report, self.recipe.eval.every_steps, EVALUATIONS)

    def checkpoint(self, report: Report) -> bool:
        every = self.recipe.checkpoint.every_steps
        return self._at("checkpoint", report, self.recipe.eval.every_steps if every == "auto" else every, EVALUATIONS)

    def line(self, report: Report) -> bool:
        return report.step == 10 or self._at("line", report, "auto", LINES)

    def _at(self, what: str, report: Report, every: int | str, parts: int) -> bool:
        if isinstance(every, int):
            return report.step % every == 0
        if self.horizon.steps is not None:
            return report.step % max(1, math.ceil(self.horizon.steps / parts)) == 0
        part = int(report.seconds / (self.horizon.seconds or 1) * parts)
        passed = part > self._passed.get(what, 0)
        self._passed[what] = max(part, self._passed.get(what, 0))
        return passed

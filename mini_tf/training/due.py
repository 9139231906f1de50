"""When evaluation, saving and a line in the log are due: at steps, or where the clock decides at shares of the time."""

import math

from torch import nn

from mini_tf.recipe.recipe import Recipe
from mini_tf.training.loop import Report
from mini_tf.training.schedule import Horizon

EVALUATIONS = 10
"""Evaluations of a run where the recipe leaves it to us, or fewer:"""
SPACING = 1e12
"""so much work, in floating-point operations, lies between two at least: some seconds of two CPU cores. Counted, not timed, so
that every repetition and continuation of a run does the same."""
SPACING_SECONDS = 5.0
"""The same where the clock decides."""
LINES = 30
"""Ordinary lines of a run's log."""


def step_work(model: nn.Module, recipe: Recipe) -> float:
    """Floating-point operations of a step, roughly: six for each weight of a product and each token."""
    weights = sum(part.weight.numel() for part in model.modules() if isinstance(part, nn.Linear))
    return 6.0 * weights * recipe.train.step_tokens


def evaluated_every(recipe: Recipe, steps: int, work: float) -> int:
    """Steps between two evaluations of a run of `steps` with `work` operations each; the last step is always evaluated."""
    if recipe.eval.every_steps != "auto":
        return recipe.eval.every_steps
    # Whoever counts evaluations wants them.
    spaced = 1 if recipe.eval.patience else math.ceil(SPACING / work)
    return max(1, math.ceil(steps / EVALUATIONS), spaced)


def evaluations_within(recipe: Recipe, seconds: float) -> int:
    """Evaluations of a run where the clock decides."""
    return EVALUATIONS if recipe.eval.patience else max(1, min(EVALUATIONS, int(seconds / SPACING_SECONDS)))


class Due:
    """Asked after every step. work: operations of a step."""

    def __init__(self, recipe: Recipe, horizon: Horizon, work: float) -> None:
        self.recipe, self.horizon, self.work = recipe, horizon, work
        self._passed: dict[str, int] = {}

    def evaluation(self, report: Report) -> bool:
        return self._evaluated("evaluation", report)

    def checkpoint(self, report: Report) -> bool:
        every = self.recipe.checkpoint.every_steps
        return report.step % every == 0 if every != "auto" else self._evaluated("checkpoint", report)

    def line(self, report: Report) -> bool:
        if self.horizon.steps is None:
            return self._share("line", report, LINES) or report.step == 10
        return report.step == 10 or report.step % max(1, math.ceil(self.horizon.steps / LINES)) == 0

    def _evaluated(self, what: str, report: Report) -> bool:
        if self.recipe.eval.every_steps == "auto" and self.horizon.steps is None:
            return self._share(what, report, evaluations_within(self.recipe, self.horizon.seconds or 0.0))
        return report.step % evaluated_every(self.recipe, self.horizon.steps or 0, self.work) == 0

    def _share(self, what: str, report: Report, parts: int) -> bool:
        """Whether one more of so many equal parts of the time is over."""
        part = int(report.seconds / (self.horizon.seconds or 1) * parts)
        passed = part > self._passed.get(what, 0)
        self._passed[what] = max(part, self._passed.get(what, 0))
        return passed

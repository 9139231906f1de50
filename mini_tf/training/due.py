"""When evaluation, saving and a line in the log are due, at steps, or at shares of the time; and how much is evaluated."""

import math
from dataclasses import dataclass

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
SHARE = 0.15
"""Tokens that all evaluations during training read together, by those that are trained on. A forward pass is a third of a step's
work: 5 %."""
FEWEST = 4096
"""Tokens of an evaluation during training: fewer tell too little, so then there are fewer evaluations."""
LINES = 30
"""Ordinary lines of a run's log, besides those after the first steps:"""
EARLY = (1, 10)


def step_work(model: nn.Module, recipe: Recipe) -> float:
    """Floating-point operations of a step, roughly: six for each weight of a product and each token."""
    weights = sum(part.weight.numel() for part in model.modules() if isinstance(part, nn.Linear))
    return 6.0 * weights * recipe.train.step_tokens


@dataclass(frozen=True)
class Evaluations:
    """When a run is evaluated and on how much: by its recipe and text alone, never by the clock, so that repetitions do the same.

    work: floating-point operations of a step; step_tokens: tokens that a step learns from, on average; held_out: held-out tokens.
    """

    recipe: Recipe
    work: float
    step_tokens: float
    held_out: int

    def every(self, steps: int) -> int:
        """Steps between two evaluations of a run of `steps`; the last step is always evaluated."""
        if self.recipe.eval.every_steps != "auto":
            return self.recipe.eval.every_steps
        # Whoever counts evaluations wants them.
        spaced = 1 if self.recipe.eval.patience else math.ceil(SPACING / self.work)
        return max(1, math.ceil(steps / self._most(steps)), spaced)

    def within(self, seconds: float) -> int:
        """How many there are where the clock decides."""
        if self.recipe.eval.patience:
            return EVALUATIONS
        return max(1, min(self._most(self._steps(Horizon(seconds=seconds))), int(seconds / SPACING_SECONDS)))

    def count(self, horizon: Horizon) -> int:
        """How many there are, that after the last step included."""
        if horizon.steps is None and self.recipe.eval.every_steps == "auto":
            return self.within(horizon.seconds or 0.0)
        steps = self._steps(horizon)
        return math.ceil(steps / self.every(steps))

    def tokens(self, horizon: Horizon) -> int | None:
        """Held-out tokens that each of them reads; None = all, and then the last one need not be made again."""
        wanted = self.recipe.eval.tokens
        if wanted is None or (count := self.count(horizon)) == 1:
            return None
        few = max(FEWEST, int(self._affordable(self._steps(horizon)) / count)) if wanted == "auto" else wanted
        return few if few < self.held_out else None

    def _most(self, steps: int) -> int:
        if self.recipe.eval.patience or self.recipe.eval.tokens != "auto":
            return EVALUATIONS
        return max(1, min(EVALUATIONS, int(self._affordable(steps) / min(FEWEST, self.held_out))))

    def _affordable(self, steps: int) -> float:
        return SHARE * steps * self.step_tokens

    def _steps(self, horizon: Horizon) -> int:
        """Of a run that the clock ends, those that two CPU cores would make."""
        return horizon.steps or max(1, int((horizon.seconds or 0.0) * SPACING / SPACING_SECONDS / self.work))


class Due:
    """Asked after every step."""

    def __init__(self, evaluations: Evaluations, horizon: Horizon) -> None:
        self.recipe, self.evaluations, self.horizon = evaluations.recipe, evaluations, horizon
        self._passed: dict[str, int] = {}

    def evaluation(self, report: Report) -> bool:
        return self._evaluated("evaluation", report)

    def checkpoint(self, report: Report) -> bool:
        every = self.recipe.checkpoint.every_steps
        return report.step % every == 0 if every != "auto" else self._evaluated("checkpoint", report)

    def line(self, report: Report) -> bool:
        if self.horizon.steps is None:
            return self._share("line", report, LINES) or report.step in EARLY
        return report.step in EARLY or report.step % max(1, math.ceil(self.horizon.steps / LINES)) == 0

    def _evaluated(self, what: str, report: Report) -> bool:
        if self.recipe.eval.every_steps == "auto" and self.horizon.steps is None:
            return self._share(what, report, self.evaluations.within(self.horizon.seconds or 0.0))
        return report.step % self.evaluations.every(self.horizon.steps or 0) == 0

    def _share(self, what: str, report: Report, parts: int) -> bool:
        """Whether one more of so many equal parts of the time is over."""
        part = int(report.seconds / (self.horizon.seconds or 1) * parts)
        passed = part > self._passed.get(what, 0)
        self._passed[what] = max(part, self._passed.get(what, 0))
        return passed

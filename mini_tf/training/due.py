"""When evaluation, checkpoint and log line are due, by steps or by shares of the time; and how many tokens are
evaluated.
"""

import math
from dataclasses import dataclass

from torch import nn

from mini_tf.recipe.recipe import Recipe
from mini_tf.training.loop import Report
from mini_tf.training.schedule import Horizon

EVALUATIONS = 10
"""Evaluations of a run by default, or fewer:"""
SPACING = 1e12
"""at least so many floating-point operations of training between two, some seconds on two CPU cores. Counted, not
timed, so that repetitions and continuations of a run are equal.
"""
SPACING_SECONDS = 5.0
"""The same for runs with a time limit."""
SHARE = 0.15
"""Tokens of all evaluations during training, relative to trained tokens. A forward pass is a third of a step: 5 % of
the time.
"""
FEWEST = 4096
"""Minimum tokens of an evaluation during training; with less data there are fewer evaluations."""
LINES = 30
"""Log lines of a run, besides those after the first steps:"""
EARLY = (1, 10)


def step_work(model: nn.Module, recipe: Recipe) -> float:
    """Approximate floating-point operations of a step: six per weight and token."""
    weights = sum(part.weight.numel() for part in model.modules() if isinstance(part, nn.Linear))
    return 6.0 * weights * recipe.train.step_tokens


@dataclass(frozen=True)
class Evaluations:
    """When a run is evaluated and on how much: by recipe and data alone, not by the clock, so that repetitions are
    equal.

    work: floating-point operations of a step; step_tokens: mean number of trained tokens per step; held_out: validation
    tokens.
    """

    recipe: Recipe
    work: float
    step_tokens: float
    held_out: int

    def every(self, steps: int) -> int:
        """Steps between two evaluations of a run of `steps`; the last step is always evaluated."""
        if self.recipe.eval.every_steps != "auto":
            return self.recipe.eval.every_steps
        # With patience the number of evaluations matters.
        spaced = 1 if self.recipe.eval.patience else math.ceil(SPACING / self.work)
        return max(1, math.ceil(steps / self._most(steps)), spaced)

    def within(self, seconds: float) -> int:
        """Number of evaluations of a run with a time limit."""
        if self.recipe.eval.patience:
            return EVALUATIONS
        return max(1, min(self._most(self._steps(Horizon(seconds=seconds))), int(seconds / SPACING_SECONDS)))

    def count(self, horizon: Horizon) -> int:
        """Number of evaluations, including that after the last step."""
        if horizon.steps is None and self.recipe.eval.every_steps == "auto":
            return self.within(horizon.seconds or 0.0)
        steps = self._steps(horizon)
        return math.ceil(steps / self.every(steps))

    def tokens(self, horizon: Horizon) -> int | None:
        """Validation tokens per evaluation; None = all, and then the last evaluation is not repeated."""
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
        """Steps; of a run with a time limit, those of two CPU cores."""
        return horizon.steps or max(1, int((horizon.seconds or 0.0) * SPACING / SPACING_SECONDS / self.work))


class Due:
    """Queried after every step."""

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
        """Whether the next of so many equal parts of the time is over."""
        part = int(report.seconds / (self.horizon.seconds or 1) * parts)
        passed = part > self._passed.get(what, 0)
        self._passed[what] = max(part, self._passed.get(what, 0))
        return passed

"""When evaluations, checkpoints and log lines are due, by steps or by time, and the tokens of an evaluation."""

import math
from dataclasses import dataclass

from torch import nn

from mini_tf.recipe.recipe import Recipe
from mini_tf.training.loop import Report
from mini_tf.training.schedule import Horizon

EVALUATIONS = 10
"""Largest number of evaluations of a run with `eval.every_steps: auto`."""
SPACING = 1e12
"""Minimum FLOPs of training between two evaluations: a few seconds on two CPU cores. Counted, not timed, so that
repeated and resumed runs evaluate at the same steps."""
SPACING_SECONDS = 5.0
"""The same in seconds, for a run with `train.time`."""
SHARE = 0.15
"""Tokens of all evaluations during training, as a share of the training tokens. A forward pass is a third of a step, so
5 % overhead."""
FEWEST = 4096
"""Minimum tokens of an evaluation during training; fewer are too noisy, so evaluations become rarer instead."""
NEVER = 10**12
"""Steps, more than any run has."""
LOG_LINES = 30
"""Log lines of a run, besides those of FIRST_LOGGED."""
FIRST_LOGGED = (1, 10)
"""Steps that are always logged."""


def step_flops(model: nn.Module, recipe: Recipe) -> float:
    """Approximate FLOPs of a step: 6 per weight of a linear layer and token."""
    weights = sum(part.weight.numel() for part in model.modules() if isinstance(part, nn.Linear))
    return 6.0 * weights * recipe.train.step_tokens


@dataclass(frozen=True)
class EvaluationSchedule:
    """When a run is evaluated, and on how many tokens: a function of recipe and data, not of the machine's speed.

    flops: FLOPs of a step. step_tokens: mean training tokens of a step. val_tokens: tokens of the validation data.
    """

    recipe: Recipe
    flops: float
    step_tokens: float
    val_tokens: int

    def interval(self, steps: int) -> int:
        """Steps between two evaluations of a run of `steps`; the last step always has one."""
        if self.recipe.eval.every_steps is None:
            return steps or NEVER
        if self.recipe.eval.every_steps != "auto":
            return self.recipe.eval.every_steps
        # eval.patience counts evaluations, so their number must not depend on the size of the model.
        min_interval = 1 if self.recipe.eval.patience else math.ceil(SPACING / self.flops)
        return max(1, math.ceil(steps / self._max_count(steps)), min_interval)

    def count_within(self, seconds: float) -> int:
        """Number of evaluations of a run of `seconds`."""
        if self.recipe.eval.patience:
            return EVALUATIONS
        return max(1, min(self._max_count(self._steps(Horizon(seconds=seconds))), int(seconds / SPACING_SECONDS)))

    def count(self, horizon: Horizon) -> int:
        """Number of evaluations, including the one after the last step."""
        if horizon.steps is None and self.recipe.eval.every_steps == "auto":
            return self.count_within(horizon.seconds or 0.0)
        steps = self._steps(horizon)
        return math.ceil(steps / self.interval(steps))

    def tokens(self, horizon: Horizon) -> int | None:
        """Validation tokens of an evaluation during training; None = all, so the last one need not be repeated."""
        setting = self.recipe.eval.tokens
        if setting is None or (count := self.count(horizon)) == 1:
            return None
        tokens = max(FEWEST, int(self._budget(self._steps(horizon)) / count)) if setting == "auto" else setting
        return tokens if tokens < self.val_tokens else None

    def _max_count(self, steps: int) -> int:
        if self.recipe.eval.patience or self.recipe.eval.tokens != "auto":
            return EVALUATIONS
        return max(1, min(EVALUATIONS, int(self._budget(steps) / min(FEWEST, self.val_tokens))))

    def _budget(self, steps: int) -> float:
        """Tokens of all evaluations of a run of `steps`."""
        return SHARE * steps * self.step_tokens

    def _steps(self, horizon: Horizon) -> int:
        """Steps of the run; with `train.time`, as many as two CPU cores would do."""
        return horizon.steps or max(1, int((horizon.seconds or 0.0) * SPACING / SPACING_SECONDS / self.flops))


class Due:
    """Whether an evaluation, a checkpoint or a log line is due after a step."""

    def __init__(self, evaluations: EvaluationSchedule, horizon: Horizon) -> None:
        self.recipe, self.evaluations, self.horizon = evaluations.recipe, evaluations, horizon
        self._passed: dict[str, int] = {}

    def evaluation(self, report: Report) -> bool:
        return self._interval_passed("evaluation", report)

    def checkpoint(self, report: Report) -> bool:
        every = self.recipe.checkpoint.every_steps
        return report.step % every == 0 if every != "auto" else self._interval_passed("checkpoint", report)

    def line(self, report: Report) -> bool:
        if self.horizon.steps is None:
            return self._part_passed("line", report, LOG_LINES) or report.step in FIRST_LOGGED
        return report.step in FIRST_LOGGED or report.step % max(1, math.ceil(self.horizon.steps / LOG_LINES)) == 0

    def _interval_passed(self, event: str, report: Report) -> bool:
        if self.recipe.eval.every_steps == "auto" and self.horizon.steps is None:
            return self._part_passed(event, report, self.evaluations.count_within(self.horizon.seconds or 0.0))
        return report.step % self.evaluations.interval(self.horizon.steps or 0) == 0

    def _part_passed(self, event: str, report: Report, parts: int) -> bool:
        """Whether another of `parts` equal parts of the training time has passed."""
        part = int(report.seconds / (self.horizon.seconds or 1) * parts)
        before, self._passed[event] = self._passed.get(event, 0), part
        return part > before

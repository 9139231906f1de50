"""Length of training and learning rate: pure functions of the step, nothing to save.

Every schedule is a function of (step, number of steps). With a time limit, the number of steps is extrapolated from the
steps so far, so the schedule follows the share of the time.
"""

import math
from dataclasses import dataclass, replace

from mini_tf.recipe.kind_settings import ScheduleSettings
from mini_tf.recipe.sections import Train

_GUESSED_STEPS = 1000  # number of steps assumed for the first step of a run with a time limit


def factor(settings: ScheduleSettings, step: int, n_steps: float) -> float:
    """The learning rate of step number `step` (from 0) of `n_steps`, as a fraction of the peak, in (0, 1] during
    training.

    The warmup rises in equal steps to 1 at its last step. No step has a learning rate of 0.
    """
    assert step >= 0, "the curve begins at step 0"
    warmup = settings.warmup if isinstance(settings.warmup, int) else settings.warmup * n_steps
    if step + 1 < warmup:
        return (step + 1) / warmup
    return settings.share(step, warmup, n_steps)


@dataclass(frozen=True)
class Horizon:
    """The end of training: after `steps`, or after `seconds` if steps is None."""

    steps: int | None = None
    seconds: float | None = None


def horizon_of(train: Train, epoch_steps: float, epoch_tokens: float) -> Horizon:
    """The horizon of a recipe, in steps where possible.

    epoch_steps and epoch_tokens: steps and trained tokens of an epoch. Fractions of a step are rounded up.
    """
    if train.time is not None:
        return Horizon(seconds=train.time)
    if train.tokens is not None:
        steps = train.tokens / epoch_tokens * epoch_steps
    elif train.epochs is not None:
        steps = train.epochs * epoch_steps
    elif train.steps is not None:
        steps = train.steps
    else:
        raise ValueError("a recipe must have one length of training: train.steps, tokens, epochs or time")
    # Quotients like 0.3 * 10 / 1 = 3.0000000000000004 are not rounded up.
    return Horizon(steps=max(1, math.ceil(steps - 1e-9 * steps)))


@dataclass(frozen=True)
class TrainingSchedule:
    """The learning rate of every step, and the end of training. begin: the first step of the schedule."""

    schedule: ScheduleSettings
    peak: float
    horizon: Horizon
    begin: int = 0

    def rate(self, step: int, seconds: float) -> float:
        """The learning rate of step number `step` (from 0), after `seconds` of training."""
        return self.peak * factor(self.schedule, step - self.begin, self.n_steps(step, seconds) - self.begin)

    def finished(self, step: int, seconds: float) -> bool:
        """Whether training ends after `step` steps or `seconds`."""
        if self.horizon.steps is not None:
            return step >= self.horizon.steps
        return seconds >= (self.horizon.seconds or 0.0)

    def n_steps(self, step: int, seconds: float) -> float:
        """The total number of steps; with a time limit extrapolated from the finished ones."""
        if self.horizon.steps is not None:
            return self.horizon.steps
        if step == 0 or seconds <= 0:
            return _GUESSED_STEPS
        return step * (self.horizon.seconds or 0.0) / seconds

    def extended(self, begin: int, steps: int) -> "TrainingSchedule":
        """The same schedule once more, warmup included, for `steps` further steps after step `begin`."""
        return replace(self, begin=begin, horizon=Horizon(steps=begin + steps))

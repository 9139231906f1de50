"""How long training lasts, and the learning rate on the way: pure functions of the step, nothing to save.

Every curve is a function of (step, number of steps). Where the clock is the horizon, the number of steps is what the
steps so far extrapolate to, so the curve follows the share of the time that is used up.
"""

import math
from dataclasses import dataclass, replace

from mini_tf.recipe.kind_settings import ScheduleSettings
from mini_tf.recipe.sections import Train

_GUESSED_STEPS = 1000  # horizon of the very first step where the clock decides and no step has been timed


def factor(settings: ScheduleSettings, step: int, n_steps: float) -> float:
    """The rate of step number `step` (from 0) of `n_steps`, as a share of the peak, in (0, 1] as long as steps remain.

    The warmup rises in equal steps to 1 at its last step. No step is wasted on a rate of 0, neither first nor last.
    """
    assert step >= 0, "the curve begins at step 0"
    warmup = settings.warmup if isinstance(settings.warmup, int) else settings.warmup * n_steps
    if step + 1 < warmup:
        return (step + 1) / warmup
    return settings.share(step, warmup, n_steps)


@dataclass(frozen=True)
class Horizon:
    """Where training ends: after `steps`, or after `seconds` where steps is None."""

    steps: int | None = None
    seconds: float | None = None


def horizon_of(train: Train, epoch_steps: float, epoch_tokens: float) -> Horizon:
    """The one horizon that a recipe gives, in steps where it can be.

    epoch_steps and epoch_tokens: steps of an epoch, and tokens that are learnt from in it. Parts of a step are whole steps.
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
        raise ValueError("a recipe must have one horizon: train.steps, tokens, epochs or time")
    # Quotients like 0.3 * 10 / 1 = 3.0000000000000004 are not a step more.
    return Horizon(steps=max(1, math.ceil(steps - 1e-9 * steps)))


@dataclass(frozen=True)
class TrainingSchedule:
    """The rate of every step and where the last one is. `begin`: the first step that the curve counts from."""

    schedule: ScheduleSettings
    peak: float
    horizon: Horizon
    begin: int = 0

    def rate(self, step: int, seconds: float) -> float:
        """The learning rate of step number `step` (from 0), when training has taken `seconds` so far."""
        return self.peak * factor(self.schedule, step - self.begin, self.n_steps(step, seconds) - self.begin)

    def finished(self, step: int, seconds: float) -> bool:
        """Whether `step` finished steps, or `seconds`, are all there is to do."""
        if self.horizon.steps is not None:
            return step >= self.horizon.steps
        return seconds >= (self.horizon.seconds or 0.0)

    def n_steps(self, step: int, seconds: float) -> float:
        """How many steps there will be in all; where the clock decides, as the `step` finished ones extrapolate."""
        if self.horizon.steps is not None:
            return self.horizon.steps
        if step == 0 or seconds <= 0:
            return _GUESSED_STEPS
        return step * (self.horizon.seconds or 0.0) / seconds

    def extended(self, begin: int, steps: int) -> "TrainingSchedule":
        """`steps` further steps after step `begin`, where the run had ended: the same curve, warmup and all, once more."""
        return replace(self, begin=begin, horizon=Horizon(steps=begin + steps))

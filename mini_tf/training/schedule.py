"""Length of training and learning rate: pure functions of the step, without state to save.

A schedule is a function of (step, number of steps). With `train.time` the number of steps is extrapolated from the
steps so far, so the learning rate follows the share of the time that has passed.
"""

import math
from dataclasses import dataclass, replace

from mini_tf.recipe.kind_settings import ScheduleSettings
from mini_tf.recipe.sections import Train

_GUESSED_STEPS = 1000  # with `train.time`, before the first step has been timed


def lr_factor(settings: ScheduleSettings, step: int, n_steps: float) -> float:
    """The factor on the peak learning rate at `step` (from 0) of `n_steps`, in (0, 1] for step < n_steps.

    Linear warmup to 1 at its last step. Neither the first nor the last step has a learning rate of 0.
    """
    assert step >= 0, "steps count from 0"
    warmup = settings.warmup if isinstance(settings.warmup, int) else settings.warmup * n_steps
    if step + 1 < warmup:
        return (step + 1) / warmup
    return settings.lr_factor(step, warmup, n_steps)


@dataclass(frozen=True)
class Horizon:
    """End of training: after `steps`, or after `seconds` if steps is None."""

    steps: int | None = None
    seconds: float | None = None


def horizon_of(train: Train, epoch_steps: float, epoch_tokens: float) -> Horizon:
    """The end of training in a recipe, in steps unless it is `train.time`.

    epoch_steps, epoch_tokens: steps and training tokens per epoch. Fractions of a step are rounded up.
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
    # A rounding error as in 0.3 * 10 / 1 = 3.0000000000000004 is not another step.
    return Horizon(steps=max(1, math.ceil(steps - 1e-9 * steps)))


@dataclass(frozen=True)
class TrainingSchedule:
    """Learning rate of every step, and the end of training. start_step: where the schedule starts.

    before: of a run that was extended, the schedule of the steps before `start_step`.
    """

    schedule: ScheduleSettings
    peak_lr: float
    horizon: Horizon
    start_step: int = 0
    before: "TrainingSchedule | None" = None

    def at(self, step: int) -> "TrainingSchedule":
        """The schedule of `step` (from 0): an earlier one where the last checkpoint of an extended run was lost."""
        return self if self.before is None or step >= self.start_step else self.before.at(step)

    def starts_at(self, step: int) -> bool:
        """Whether a schedule starts at `step`: that of the run, or that of an extension where the run had ended."""
        return self.at(step).start_step == step

    def lr(self, step: int, seconds: float) -> float:
        """The learning rate at `step` (from 0), after `seconds` of training."""
        if (schedule := self.at(step)) is not self:
            return schedule.lr(step, seconds)
        n_steps = self.n_steps(step, seconds) - self.start_step
        return self.peak_lr * lr_factor(self.schedule, step - self.start_step, n_steps)

    def finished(self, step: int, seconds: float) -> bool:
        """Whether training ends after `step` steps and `seconds`."""
        if self.horizon.steps is not None:
            return step >= self.horizon.steps
        return seconds >= (self.horizon.seconds or 0.0)

    def progress(self, step: int) -> float:
        """Share of the steps of the run that are before `step`; 1 in an extension, and where `train.time` ends the run.

        It does not depend on the time, so it may decide which samples are drawn.
        """
        if self.before is not None:
            return self.before.progress(step)
        return 1.0 if self.horizon.steps is None else min(1.0, step / self.horizon.steps)

    def n_steps(self, step: int, seconds: float) -> float:
        """Total number of steps; with `train.time`, extrapolated from the `step` finished ones."""
        if self.horizon.steps is not None:
            return self.horizon.steps
        if step == 0 or seconds <= 0:
            return _GUESSED_STEPS
        return step * (self.horizon.seconds or 0.0) / seconds

    def extended(self, end: int, steps: int) -> "TrainingSchedule":
        """`steps` further steps after the run ended at step `end`: the schedule restarts there, with its warmup."""
        return replace(self, start_step=end, horizon=Horizon(steps=end + steps), before=self)

"""Learning rate schedules: the factor that multiplies the peak learning rate at each step after the warmup.

This file is the contract. Every other file of this package is one schedule, named by the word that a recipe writes. It
has `Settings` with one method, `lr_factor`, a pure function of the step and the number of steps (as the lr_lambda of
torch's LambdaLR). `mini_tf.testing.schedules` tests every schedule against its class variables.
"""

from typing import ClassVar

from mini_tf.recipe import kind_settings


class ScheduleSettings(kind_settings.ScheduleSettings):
    MONOTONE: ClassVar[bool] = True
    """The learning rate never rises after the warmup."""
    CONTINUOUS: ClassVar[bool] = True
    """With many steps the learning rate changes little from one step to the next."""
    REACHES_FLOOR: ClassVar[bool] = True
    """The learning rate would be at the floor one step after the last."""

    def decayed(self, fraction: float) -> float:
        """Interpolate from the peak (fraction 0) to the floor (fraction 1)."""
        return 1 - (1 - self.floor) * fraction


def progress(step: int, start: float, n_steps: float) -> float:
    """Position of `step` between `start` and the end, from 0 to 1."""
    return min(max((step - start) / max(n_steps - start, 1e-9), 0.0), 1.0)

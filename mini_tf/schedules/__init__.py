"""Schedules: the learning rate over the steps after the warmup, as a share of the peak.

The contract stands here; every other file of this package is one schedule, and its name is the word a recipe writes. A file has
`Settings` with one method, `share`, a pure function of the step and the number of steps. `mini_tf.testing.schedules` holds every
kind to what it claims.
"""

from typing import ClassVar

from mini_tf.recipe import kind_settings


class ScheduleSettings(kind_settings.ScheduleSettings):
    MONOTONE: ClassVar[bool] = True
    """After the warmup the rate never rises."""
    CONTINUOUS: ClassVar[bool] = True
    """From one step to the next the rate changes little, where there are many steps."""
    REACHES_FLOOR: ClassVar[bool] = True
    """The rate of the step after the last one would be the floor."""

    def fallen(self, way: float) -> float:
        """The share of the peak where the rate has come `way` (0 to 1) of the way down from the peak to the floor."""
        return 1 - (1 - self.floor) * way


def progress(step: int, begin: float, n_steps: float) -> float:
    """How far `step` is from `begin` to the end, from 0 to 1."""
    return min(max((step - begin) / max(n_steps - begin, 1e-9), 0.0), 1.0)

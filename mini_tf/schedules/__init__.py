"""Schedules: the learning rate after the warmup, as a fraction of the peak.

The contract is here; every other file of this package is one schedule, named by the file name in a recipe. A file has
`Settings` with one method, `share`, a pure function of the step and the number of steps. `mini_tf.testing.schedules`
tests what a schedule declares.
"""

from typing import ClassVar

from mini_tf.recipe import kind_settings


class ScheduleSettings(kind_settings.ScheduleSettings):
    MONOTONE: ClassVar[bool] = True
    """After the warmup the learning rate never rises."""
    CONTINUOUS: ClassVar[bool] = True
    """The learning rate has no jumps."""
    REACHES_FLOOR: ClassVar[bool] = True
    """The learning rate ends at the floor."""

    def fallen(self, way: float) -> float:
        """The fraction of the peak after `way` (0 to 1) of the decay from the peak to the floor."""
        return 1 - (1 - self.floor) * way


def progress(step: int, begin: float, n_steps: float) -> float:
    """Progress of `step` from `begin` to the end, 0 to 1."""
    return min(max((step - begin) / max(n_steps - begin, 1e-9), 0.0), 1.0)

"""staircase: the rate is halved at equal distances, and does not fall below the floor."""

from typing import ClassVar

from pydantic import Field

from mini_tf.schedules import ScheduleSettings, progress


class Settings(ScheduleSettings):
    CONTINUOUS: ClassVar[bool] = False
    REACHES_FLOOR: ClassVar[bool] = False

    stairs: int = Field(4, ge=1, le=100)
    """Number of different rates."""

    def lr_factor(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return max(self.floor, 0.5 ** min(int(progress(step, warmup_steps, n_steps) * self.stairs), self.stairs - 1))

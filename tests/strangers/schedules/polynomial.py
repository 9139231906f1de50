"""polynomial: from the peak down to the floor as a power of what is left of the run."""

from pydantic import Field

from mini_tf.schedules import ScheduleSettings, progress


class Settings(ScheduleSettings):
    power: float = Field(2.0, gt=0, le=10)
    """1 is a straight line; above: fast at first."""

    def lr_factor(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return self.decayed(1 - (1 - progress(step, warmup_steps, n_steps)) ** self.power)

"""constant: the peak learning rate until the end."""

from mini_tf.schedules import ScheduleSettings


class Settings(ScheduleSettings):
    REACHES_FLOOR = False

    def lr_factor(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return 1.0

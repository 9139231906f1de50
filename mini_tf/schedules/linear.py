"""linear: linear decay from the peak to the floor."""

from mini_tf.schedules import ScheduleSettings, progress


class Settings(ScheduleSettings):
    def lr_factor(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return self.decayed(progress(step, warmup_steps, n_steps))

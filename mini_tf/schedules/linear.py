"""linear: linear decay from the peak to the floor."""

from mini_tf.schedules import ScheduleSettings, progress


class Settings(ScheduleSettings):
    def share(self, step: int, begin: float, n_steps: float) -> float:
        return self.fallen(progress(step, begin, n_steps))

"""linear: from the peak down to the floor in a straight line."""

from mini_tf.schedules import ScheduleSettings, progress


class Settings(ScheduleSettings):
    def share(self, step: int, begin: float, n_steps: float) -> float:
        return self.fallen(progress(step, begin, n_steps))

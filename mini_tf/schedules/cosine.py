"""cosine: half a cosine from the peak to the floor.

Source: Loshchilov and Hutter 2017, "SGDR", arXiv:1608.03983, without restarts.
"""

import math

from mini_tf.schedules import ScheduleSettings, progress


class Settings(ScheduleSettings):
    def lr_factor(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return self.decayed((1 - math.cos(math.pi * progress(step, warmup_steps, n_steps))) / 2)

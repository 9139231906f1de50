"""cosine: decay from the peak to the floor along half a cosine.

Source: Loshchilov and Hutter 2017, "SGDR", arXiv:1608.03983, without restarts.
"""

import math

from mini_tf.schedules import ScheduleSettings, progress


class Settings(ScheduleSettings):
    def share(self, step: int, begin: float, n_steps: float) -> float:
        return self.fallen((1 - math.cos(math.pi * progress(step, begin, n_steps))) / 2)

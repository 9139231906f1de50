"""inverse_sqrt: decay as 1 / sqrt(step), not below the floor.

Source: Vaswani et al. 2017, arXiv:1706.03762, section 5.3, scaled to 1 at the end of the warmup.
"""

import math

from mini_tf.schedules import ScheduleSettings


class Settings(ScheduleSettings):
    REACHES_FLOOR = False

    def lr_factor(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return max(self.floor, math.sqrt(max(warmup_steps, 1) / max(step + 1, warmup_steps)))

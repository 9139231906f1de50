"""wsd: warmup, stable, decay. The peak is held, then the rate falls to the floor in a straight line.

Source: Hu et al. 2024, "MiniCPM", arXiv:2404.06395, section 4.
"""

from pydantic import Field

from mini_tf.recipe.kinds import Rule, Rules
from mini_tf.schedules import ScheduleSettings, progress


class Settings(ScheduleSettings):
    decay: float = Field(0.3, gt=0, le=1)
    """Share of the horizon over which the rate falls."""

    def rules(self) -> Rules:
        if isinstance(self.warmup, float) and self.warmup + self.decay > 1:
            what = f"{self.decay:g} and a warmup of {self.warmup:g} are more than the whole run; their sum is at most 1"
            yield Rule("decay", what, ("warmup",))

    def share(self, step: int, begin: float, n_steps: float) -> float:
        return self.fallen(progress(step, max(begin, n_steps * (1 - self.decay)), n_steps))

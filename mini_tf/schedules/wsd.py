"""wsd: warmup, stable, decay; the peak is held, then the learning rate decays linearly to the floor.

Source: Hu et al. 2024, "MiniCPM", arXiv:2404.06395, section 4.
"""

from pydantic import Field

from mini_tf.recipe.kinds import Rule, Rules
from mini_tf.schedules import ScheduleSettings, progress


class Settings(ScheduleSettings):
    decay: float = Field(0.3, gt=0, le=1)
    """Share of the run over which the learning rate decays."""

    def rules(self) -> Rules:
        if isinstance(self.warmup, float) and self.warmup + self.decay > 1:
            what = f"{self.decay:g} and a warmup of {self.warmup:g} exceed the run; their sum must be at most 1"
            yield Rule("decay", what, ("warmup",))

    def share(self, step: int, begin: float, n_steps: float) -> float:
        return self.fallen(progress(step, max(begin, n_steps * (1 - self.decay)), n_steps))

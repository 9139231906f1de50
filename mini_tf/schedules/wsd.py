"""wsd: warmup-stable-decay. Constant at the peak, then linear decay to the floor.

Source: Hu et al. 2024, "MiniCPM", arXiv:2404.06395, section 4.
"""

from pydantic import Field

from mini_tf.recipe.kinds import Rule, Rules
from mini_tf.schedules import ScheduleSettings, progress


class Settings(ScheduleSettings):
    ALIASES = ("trapezoidal", "warmup_stable_decay")
    decay: float = Field(0.3, gt=0, le=1)
    """Share of the run in which the learning rate decays."""

    def rules(self) -> Rules:
        if isinstance(self.warmup, float) and self.warmup + self.decay > 1:
            message = f"{self.decay:g} and a warmup of {self.warmup:g} exceed the run; their sum must be at most 1"
            yield Rule("decay", message, ("warmup",))

    def lr_factor(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return self.decayed(progress(step, max(warmup_steps, n_steps * (1 - self.decay)), n_steps))

"""Learning rate schedules: the factor that multiplies the peak learning rate at each step after the warmup.

This file is the contract. Every other file of this package is one schedule, named by the word that a recipe writes. It
has `Settings` with one method, `lr_factor`, a pure function of the step and the number of steps (as the lr_lambda of
torch's LambdaLR). `mini_tf.testing.schedules` tests every schedule against its class variables.
"""

from mini_tf.recipe.kind_settings import ScheduleSettings

__all__ = ["ScheduleSettings", "progress"]


def progress(step: int, start: float, n_steps: float) -> float:
    """Position of `step` between `start` and the end, from 0 to 1."""
    return min(max((step - start) / max(n_steps - start, 1e-9), 0.0), 1.0)

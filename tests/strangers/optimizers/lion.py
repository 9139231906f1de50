"""Lion: every number moves equally far, by the sign of a mean of gradients. Source: Chen et al. 2023, arXiv:2302.06675,
algorithm 2.
"""

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from mini_tf.optimizers import Optimizer, OptimizerSettings, Parameter


class Settings(OptimizerSettings):
    beta1: float = Field(0.9, ge=0, lt=1)
    """What the mean weighs beside the gradient in a step."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """How slowly the mean forgets."""

    def moments(self, parameter: Parameter) -> dict[str, Tensor]:
        return {"mean": parameter.zeros()}

    def needs_whole(self, parameter: Parameter) -> bool:
        return False

    def build(self, parameters: Mapping[str, Parameter], matmul_dtype: torch.dtype = torch.float32) -> "Lion":
        return Lion(self, parameters)


class Lion(Optimizer):
    def __init__(self, settings: Settings, parameters: Mapping[str, Parameter]) -> None:
        super().__init__(settings, parameters)
        self.settings = settings

    def update(self, parameters: Mapping[str, Parameter], lr: float) -> None:
        for name, p in parameters.items():
            mean = self.state[name]["mean"]
            direction = torch.sign(mean.lerp(p.grad, 1 - self.settings.beta1))
            p.tensor.sub_(lr * p.lr_scale * (direction + self.settings.weight_decay_of(p) * p.tensor))
            mean.lerp_(p.grad, 1 - self.settings.beta2)

"""AdamW: the gradient's running mean over the root of the running mean of its square; weight decay apart from both.

Source: Loshchilov and Hutter 2019, arXiv:1711.05101. Memory: two tensors a parameter.
"""

from collections.abc import Mapping

import torch

from mini_tf.optimizers import Optimizer, Parameter
from mini_tf.optimizers._adam import Adam, AdamSettings


class Settings(AdamSettings):
    def build(self, parameters: Mapping[str, Parameter], products: torch.dtype = torch.float32) -> "AdamW":
        return AdamW(self, parameters)


class AdamW(Optimizer):
    """A parameter that has no gradient in some step keeps still in it. fused: as of Adam."""

    def __init__(self, settings: Settings, parameters: Mapping[str, Parameter], fused: bool | None = None) -> None:
        super().__init__(settings, parameters)
        self.adam = Adam(settings, self.parameters, self.state, fused)

    def move(self, moving: Mapping[str, Parameter], lr: float) -> None:
        self.adam.move(moving, lr, self.count)

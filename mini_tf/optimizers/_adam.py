"""AdamW on torch's fused kernel, without torch.optim, whose construction imports a compiler (a second at every start).

Source: Loshchilov and Hutter 2019, arXiv:1711.05101. Memory: two tensors per parameter.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from mini_tf.optimizers import Optimizer, OptimizerSettings, Parameter


class AdamSettings(OptimizerSettings):
    """Settings of optimizers that use AdamW for all or some parameters."""

    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    """Decay rates of AdamW's first and second moment."""
    eps: float = Field(1e-8, gt=0, le=10)
    """Added to the square root of AdamW's second moment."""

    def moments(self, parameter: Parameter) -> dict[str, Tensor]:
        return {"exp_avg": parameter.zeros(), "exp_avg_sq": parameter.zeros()}


class AdamW(Optimizer):
    """Updates parameters in groups of equal weight decay and learning rate. Moments have the type of their parameter."""

    def __init__(self, settings: AdamSettings, parameters: Mapping[str, Parameter]) -> None:
        super().__init__(settings, parameters)
        self.betas, self.eps = settings.betas, settings.eps
        groups: dict[tuple[float, float], list[str]] = defaultdict(list)
        for name, p in self.parameters.items():
            groups[settings.decay_of(p), p.rate].append(name)
        self.groups = [(names, decay, rate) for (decay, rate), names in groups.items()]
        device = next((p.tensor.device for p in self.parameters.values()), torch.device("cpu"))  # there may be no parameters
        self._count_there = torch.zeros((), device=device)  # inputs of the kernel: filled, not copied, so nothing waits

    def move(self, moving: Mapping[str, Parameter], lr: float) -> None:
        count = self._count_there.fill_(self.count)
        for group, decay, rate in self.groups:
            names = [name for name in group if name in moving]
            if not names:
                continue
            tensors, grads = [moving[name].tensor for name in names], [moving[name].grad for name in names]
            means, squares = ([self.state[name][moment] for name in names] for moment in ("exp_avg", "exp_avg_sq"))
            torch._fused_adamw_(
                tensors, grads, means, squares, [], [count] * len(names),
                lr=lr * rate, beta1=self.betas[0], beta2=self.betas[1], weight_decay=decay, eps=self.eps, amsgrad=False, maximize=False,
            )  # fmt: skip

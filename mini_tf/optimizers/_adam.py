"""The step of AdamW on torch's fused kernel, without torch.optim (to build one of those imports a compiler: a second at every start).

Source: Loshchilov and Hutter 2019, arXiv:1711.05101. Memory: two tensors a parameter.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from mini_tf.optimizers import OptimizerSettings, Parameter

_FUSED_ON = {"cpu", "cuda", "mps"}


class AdamSettings(OptimizerSettings):
    """Of optimizers that move all parameters by AdamW, or all but some."""

    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    """How slowly AdamW's two moments of the gradient forget."""
    eps: float = Field(1e-8, gt=0, le=10)
    """Added to the root of AdamW's second moment."""

    def moments(self, parameter: Parameter) -> dict[str, Tensor]:
        return {"exp_avg": parameter.zeros(), "exp_avg_sq": parameter.zeros()}


class Adam:
    """Moves `parameters`, of which `state` holds the moments, in groups of equal weight decay and rate.

    fused=None takes torch's fused kernel where the device has one. Moments have the type of their parameter.
    """

    def __init__(
        self,
        settings: AdamSettings,
        parameters: Mapping[str, Parameter],
        state: Mapping[str, Mapping[str, Tensor]],
        fused: bool | None = None,
    ) -> None:
        self.settings, self.parameters, self.state = settings, dict(parameters), state
        groups: dict[tuple[float, float], list[str]] = defaultdict(list)
        for name, p in self.parameters.items():
            groups[settings.decay_of(p), p.rate].append(name)
        self.groups = [(names, decay, rate) for (decay, rate), names in groups.items()]
        device = next((p.tensor.device for p in self.parameters.values()), torch.device("cpu"))  # there may be no parameters
        self.fused = device.type in _FUSED_ON if fused is None else fused
        self._count_there = torch.zeros((), device=device)  # what the kernel reads: filled, not copied, so nothing waits

    def move(self, moving: Collection[str], lr: float, count: int) -> None:
        """Step number `count` (from 1) of those of its parameters that are among `moving`."""
        for group, decay, rate in self.groups:
            names = [name for name in group if name in moving]
            if not names:
                continue
            tensors, grads = [self.parameters[name].tensor for name in names], [self.parameters[name].grad for name in names]
            means, squares = ([self.state[name][moment] for name in names] for moment in ("exp_avg", "exp_avg_sq"))
            move = self._move_fused if self.fused else self._move
            move(tensors, grads, means, squares, lr * rate, decay, count)

    def _move_fused(
        self, tensors: list[Tensor], grads: list[Tensor], means: list[Tensor], squares: list[Tensor], lr: float, decay: float, count: int
    ) -> None:
        beta1, beta2 = self.settings.betas
        counts = self._count_there.fill_(count)
        torch._fused_adamw_(
            tensors, grads, means, squares, [], [counts] * len(tensors),
            lr=lr, beta1=beta1, beta2=beta2, weight_decay=decay, eps=self.settings.eps, amsgrad=False, maximize=False,
        )  # fmt: skip

    def _move(
        self, tensors: list[Tensor], grads: list[Tensor], means: list[Tensor], squares: list[Tensor], lr: float, decay: float, count: int
    ) -> None:
        """The same in plain operations: m and v are running means of g and g²; p -= lr * (decay * p + m̂ / (√v̂ + eps))."""
        beta1, beta2 = self.settings.betas
        torch._foreach_mul_(tensors, 1 - lr * decay)
        torch._foreach_lerp_(means, grads, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, value=1 - beta2)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, math.sqrt(1 - beta2**count))
        torch._foreach_add_(roots, self.settings.eps)
        torch._foreach_addcdiv_(tensors, means, roots, value=-lr / (1 - beta1**count))

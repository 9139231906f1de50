"""AdamW with torch's fused kernel, without torch.optim (building one imports a compiler, which takes a second).

Weights of n-grams may be updated by Adagrad: of a rare one AdamW would forget the size of its gradients.
Source: Loshchilov and Hutter 2019, arXiv:1711.05101; Duchi et al. 2011, "Adaptive subgradient methods for online
learning and stochastic optimization". Memory: two tensors per parameter, of Adagrad one.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from mini_tf.optimizers import Number, Optimizer, OptimizerSettings, Parameter


class AdamSettings(OptimizerSettings):
    """Settings of optimizers that use AdamW for all or some of the parameters."""

    CAPTURABLE = True
    FEATURE_KEYS = ("features_lr", "features_eps")

    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    """Decay rates of AdamW's moving averages of the gradient and its square."""
    eps: float = Field(1e-8, gt=0, le=10)
    """Added to AdamW's denominator, sqrt(exp_avg_sq)."""
    features_lr: float | None = Field(None, gt=0, le=10)
    """Peak learning rate of the weights of n-grams (objective.wide), then by Adagrad; null: as embeddings, by AdamW."""
    features_eps: float = Field(1e-10, gt=0, le=10)
    """Added to the denominator of Adagrad; a larger one makes steps of small gradients smaller."""

    def lr_of(self, role: str) -> float:
        return self.features_lr if role == "features" and self.features_lr else super().lr_of(role)

    def uses_adagrad(self, parameter: Parameter) -> bool:
        """Whether it is updated by Adagrad: full steps also for a feature that has a gradient for the first time."""
        return parameter.role == "features" and self.features_lr is not None

    def needs_whole(self, parameter: Parameter) -> bool:
        return False

    def moments(self, parameter: Parameter) -> dict[str, Tensor]:
        if self.uses_adagrad(parameter):
            return {"sum": parameter.zeros()}
        return {"exp_avg": parameter.zeros(), "exp_avg_sq": parameter.zeros()}


class AdamW(Optimizer):
    """AdamW over groups of equal weight decay and learning rate. State tensors have the dtype of their parameter."""

    def __init__(self, settings: AdamSettings, parameters: Mapping[str, Parameter]) -> None:
        super().__init__(settings, parameters)
        self.betas, self.eps, self.features_eps = settings.betas, settings.eps, settings.features_eps
        groups: dict[tuple[float, float], list[str]] = defaultdict(list)
        self.features = [name for name, p in self.parameters.items() if settings.uses_adagrad(p)]
        for name, p in self.parameters.items():
            if name not in self.features:
                groups[settings.weight_decay_of(p), p.lr_scale].append(name)
        self.groups = [(names, decay, scale) for (decay, scale), names in groups.items()]

    def update(self, parameters: Mapping[str, Parameter], lr: Number) -> None:
        for group, decay, scale in self.groups:
            names = [name for name in group if name in parameters]
            if not names:
                continue
            tensors, grads = [parameters[name].tensor for name in names], [parameters[name].grad for name in names]
            means, squares = ([self.state[name][moment] for name in names] for moment in ("exp_avg", "exp_avg_sq"))
            torch._fused_adamw_(
                tensors, grads, means, squares, [], [self.step_tensor] * len(names),
                lr=lr * scale, beta1=self.betas[0], beta2=self.betas[1], weight_decay=decay, eps=self.eps,
                amsgrad=False, maximize=False,
            )  # fmt: skip
        for name in (name for name in self.features if name in parameters):
            adagrad = _adagrad_everywhere if isinstance(lr, Tensor) else _adagrad
            adagrad(parameters[name], self.state[name]["sum"], lr, self.features_eps)


def _adagrad_everywhere(parameter: Parameter, squares: Tensor, lr: Number, eps: float) -> None:
    """`_adagrad` without looking for gradients, which would wait for the device: without one nothing changes."""
    squares.addcmul_(parameter.grad, parameter.grad)
    parameter.tensor.sub_(lr * parameter.lr_scale * parameter.grad / (squares.sqrt() + eps))


def _adagrad(parameter: Parameter, squares: Tensor, lr: Number, eps: float) -> None:
    """A step of Adagrad where there is a gradient; squares: the sum of squared gradients of all steps."""
    at = parameter.grad.flatten().nonzero().squeeze(1)
    grads, squares, weights = parameter.grad.flatten()[at], squares.view(-1), parameter.tensor.view(-1)
    summed = squares[at] + grads**2
    squares[at] = summed
    weights[at] -= lr * parameter.lr_scale * grads / (summed.sqrt() + eps)

"""AdamW on torch's fused kernel, without torch.optim (to build one of those imports a compiler: a second at every start).

Weight decay pulls on matrices only: vectors (norms, biases) and embeddings stay free, since a token that is seldom seen
would shrink for nothing. Source: Loshchilov and Hutter 2019, arXiv:1711.05101. Memory: two tensors a parameter.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from mini_tf.recipe.sections import Optimizer as Settings

_FUSED_ON = {"cpu", "cuda", "mps"}


def take_over(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Copy `given` into `own`; ValueError where names, shapes or types differ, before anything is copied."""
    if strange := sorted(own.keys() ^ given.keys()):
        raise ValueError(f"optimizer state does not fit the model: {', '.join(strange[:5])} ({len(strange)} names on one side only)")
    for name, tensor in own.items():
        found = given[name]
        if (found.shape, found.dtype) != (tensor.shape, tensor.dtype):
            raise ValueError(f"optimizer state {name}: {found.dtype} {list(found.shape)} must be {tensor.dtype} {list(tensor.shape)}")
    for name, tensor in own.items():
        tensor.copy_(given[name])


class AdamW:
    """One count of steps serves all parameters; one that has no gradient in some step keeps still in it.

    undecayed: names of matrices that weight decay leaves alone. rates: learning rates by name, as multiples of the common one
    (1 where absent). fused=None takes torch's fused kernel where the device has one. Moments have the type of their parameter.
    """

    def __init__(
        self,
        named: Mapping[str, Tensor],
        settings: Settings,
        undecayed: Collection[str] = (),
        fused: bool | None = None,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        self.settings = settings
        self.parameters = dict(named)
        self.mean = {name: torch.zeros_like(p, requires_grad=False) for name, p in self.parameters.items()}
        self.square = {name: torch.zeros_like(p, requires_grad=False) for name, p in self.parameters.items()}
        self.count = 0
        groups: dict[tuple[float, float], list[str]] = defaultdict(list)
        for name, p in self.parameters.items():
            decay = settings.weight_decay if p.dim() >= 2 and name not in undecayed else 0.0
            groups[decay, (rates or {}).get(name, 1.0)].append(name)
        self.groups = [(names, decay, rate) for (decay, rate), names in groups.items()]
        device = next((p.device for p in self.parameters.values()), torch.device("cpu"))  # with Muon there may be nothing left
        self.fused = device.type in _FUSED_ON if fused is None else fused
        self._count_there = torch.zeros((), device=device)  # what the kernel reads: filled, not copied, so nothing waits

    def grad_norm(self) -> Tensor:
        grads = [p.grad for p in self.parameters.values() if p.grad is not None]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        return norm

    @torch.no_grad()
    def step(self, lr: float, grad_factor: float = 1.0) -> None:
        self.count += 1
        for names, decay, rate in self.groups:
            names = [name for name in names if self.parameters[name].grad is not None]
            if not names:
                continue
            grads = [g for name in names if (g := self.parameters[name].grad) is not None]
            if grad_factor != 1.0:
                torch._foreach_mul_(grads, grad_factor)
            parameters, means, squares = ([of[name] for name in names] for of in (self.parameters, self.mean, self.square))
            move = self._move_fused if self.fused else self._move
            move(parameters, grads, means, squares, lr * rate, decay)

    def zero_grad(self) -> None:
        for p in self.parameters.values():
            p.grad = None

    def state_tensors(self) -> dict[str, Tensor]:
        means = {f"{name}.exp_avg": tensor for name, tensor in self.mean.items()}
        squares = {f"{name}.exp_avg_sq": tensor for name, tensor in self.square.items()}
        return {"step": torch.tensor(self.count), **means, **squares}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        take_over(self.state_tensors(), tensors)
        self.count = int(tensors["step"])

    def _move_fused(
        self, parameters: list[Tensor], grads: list[Tensor], means: list[Tensor], squares: list[Tensor], lr: float, decay: float
    ) -> None:
        beta1, beta2 = self.settings.betas
        counts = self._count_there.fill_(self.count)
        torch._fused_adamw_(
            parameters, grads, means, squares, [], [counts] * len(parameters),
            lr=lr, beta1=beta1, beta2=beta2, weight_decay=decay, eps=self.settings.eps, amsgrad=False, maximize=False,
        )  # fmt: skip

    def _move(
        self, parameters: list[Tensor], grads: list[Tensor], means: list[Tensor], squares: list[Tensor], lr: float, decay: float
    ) -> None:
        """The same in plain operations: m and v are running means of g and g²; p -= lr * (decay * p + m̂ / (√v̂ + eps))."""
        beta1, beta2 = self.settings.betas
        torch._foreach_mul_(parameters, 1 - lr * decay)
        torch._foreach_lerp_(means, grads, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, value=1 - beta2)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, math.sqrt(1 - beta2**self.count))
        torch._foreach_add_(roots, self.settings.eps)
        torch._foreach_addcdiv_(parameters, means, roots, value=-lr / (1 - beta1**self.count))

"""AdamW on torch's fused kernel, without torch.optim (to build one of those imports a compiler: a second at every start).

Weight decay pulls on matrices only: vectors (norms, biases) and embeddings stay free, since a token that is seldom seen
would shrink for nothing. Source: Loshchilov and Hutter 2019, arXiv:1711.05101. Memory: two tensors a parameter.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from mini_tf.recipe.sections import Optimizer as Settings

_FUSED_ON = {"cpu", "cuda", "mps"}


class Optimizer(Protocol):
    """What the loop and the run folder ask of every optimizer."""

    def grad_norm(self) -> Tensor:
        """The global norm of the gradient, as a tensor without axes: nothing waits for the device."""

    def step(self, lr: float, grad_factor: float = 1.0) -> None:
        """Move every parameter that has a gradient; the gradient is multiplied by `grad_factor` first (clipping)."""

    def zero_grad(self) -> None: ...

    def state_tensors(self) -> dict[str, Tensor]:
        """All there is to save, by parameter name: the tensors themselves, not copies."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `state_tensors` gave; ValueError where names, shapes or types differ."""


def build(settings: Settings, model: nn.Module) -> Optimizer:
    """The optimizer of a recipe, for all parameters of `model` that learn. Its names are the model's names."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return AdamW(named, settings, _embeddings(model))


def clip_factor(norm: float, largest: float) -> float:
    """What brings a gradient of this norm down to `largest`; 1 where it is smaller, or where `largest` is 0."""
    return min(1.0, largest / (norm + 1e-6)) if largest > 0 else 1.0


def _embeddings(model: nn.Module) -> set[str]:
    names = {f"{name}.weight" for name, part in model.named_modules() if isinstance(part, nn.Embedding)}
    return names | {name for name, _ in model.named_parameters() if name.endswith("embedding.weight")}


class AdamW:
    """One count of steps serves all parameters; one that has no gradient in some step keeps still in it.

    undecayed: names of matrices that weight decay leaves alone. fused=None takes torch's fused kernel where the device
    has one. Moments have the type of their parameter.
    """

    def __init__(
        self, named: Iterable[tuple[str, Tensor]], settings: Settings, undecayed: Collection[str] = (), fused: bool | None = None
    ) -> None:
        self.settings = settings
        self.parameters = dict(named)
        self.mean = {name: torch.zeros_like(p, requires_grad=False) for name, p in self.parameters.items()}
        self.square = {name: torch.zeros_like(p, requires_grad=False) for name, p in self.parameters.items()}
        self.count = 0
        decays = {name: p.dim() >= 2 and name not in undecayed for name, p in self.parameters.items()}
        self.groups = [
            ([name for name in decays if decays[name]], settings.weight_decay),
            ([name for name in decays if not decays[name]], 0.0),
        ]
        device = next(iter(self.parameters.values())).device
        self.fused = device.type in _FUSED_ON if fused is None else fused
        self._count_there = torch.zeros((), device=device)  # what the kernel reads: filled, not copied, so nothing waits

    def grad_norm(self) -> Tensor:
        grads = [p.grad for p in self.parameters.values() if p.grad is not None]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        return norm

    @torch.no_grad()
    def step(self, lr: float, grad_factor: float = 1.0) -> None:
        self.count += 1
        for names, decay in self.groups:
            names = [name for name in names if self.parameters[name].grad is not None]
            if not names:
                continue
            grads = [g for name in names if (g := self.parameters[name].grad) is not None]
            if grad_factor != 1.0:
                torch._foreach_mul_(grads, grad_factor)
            parameters, means, squares = ([of[name] for name in names] for of in (self.parameters, self.mean, self.square))
            move = self._move_fused if self.fused else self._move
            move(parameters, grads, means, squares, lr, decay)

    def zero_grad(self) -> None:
        for p in self.parameters.values():
            p.grad = None

    def state_tensors(self) -> dict[str, Tensor]:
        means = {f"{name}.exp_avg": tensor for name, tensor in self.mean.items()}
        squares = {f"{name}.exp_avg_sq": tensor for name, tensor in self.square.items()}
        return {"step": torch.tensor(self.count), **means, **squares}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        own = self.state_tensors()
        if strange := sorted(own.keys() ^ tensors.keys()):
            raise ValueError(f"optimizer state does not fit the model: {', '.join(strange[:5])} ({len(strange)} names on one side only)")
        for name, tensor in own.items():
            found = tensors[name]
            if (found.shape, found.dtype) != (tensor.shape, tensor.dtype):
                raise ValueError(f"optimizer state {name}: {found.dtype} {list(found.shape)} must be {tensor.dtype} {list(tensor.shape)}")
            tensor.copy_(found)
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

"""Muon: the update of a matrix is its momentum made orthogonal, so that every direction moves equally far.

Orthogonal by a few steps of an odd polynomial, X <- a X + (b (X X^T) + c (X X^T)^2) X, which drives all singular values
towards 1. Matrices of one shape go through it together. Everything that is not a matrix of a layer is AdamW's.

Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the coefficients of each step:
Amsel et al. 2025, "The Polar Express", arXiv:2505.16932, section 4, for singular values in [0.001, 1].
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mini_tf.recipe.sections import Optimizer as Settings
from mini_tf.training.adamw import AdamW, take_over

COEFFICIENTS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.875, -1.25, 0.375),
)
"""(a, b, c) of each step; the last one for all that follow."""
SAFETY = 1.01
"""The polynomials are given a little less than they can bear, since a singular value above their interval would explode."""


def orthogonal(matrices: Tensor, n_steps: int) -> Tensor:
    """(n, R, C) -> the nearest (semi-)orthogonal matrices, roughly: the more steps, the nearer the singular values are to 1."""
    wide = matrices if matrices.shape[-2] <= matrices.shape[-1] else matrices.mT
    exact = torch.float32 if wide.dtype == torch.bfloat16 else wide.dtype
    norms = torch.linalg.vector_norm(wide, dim=(-2, -1), keepdim=True, dtype=exact)
    x = wide / (norms * SAFETY + 1e-7).to(wide.dtype)
    for step in range(n_steps):
        a, b, c = COEFFICIENTS[min(step, len(COEFFICIENTS) - 1)]
        if step < len(COEFFICIENTS) - 1:
            a, b, c = a / SAFETY, b / SAFETY**3, c / SAFETY**5
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    found: Tensor = x if wide is matrices else x.mT
    return found


class Muon:
    """matrices: moved by Muon; rows: of each that is several matrices in one, the rows of every part; rest: what AdamW moves.

    rates: learning rates of matrices by name, as multiples of the common one (1 where absent).
    """

    def __init__(
        self,
        matrices: Mapping[str, Tensor],
        rows: Mapping[str, Sequence[int]],
        settings: Settings,
        rest: AdamW,
        products: torch.dtype = torch.float32,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        self.settings, self.rest = settings, rest
        self.products = torch.float32 if products == torch.float16 else products  # the powers would overflow
        self.matrices = dict(matrices)
        self.momentum = {name: torch.zeros_like(p, requires_grad=False) for name, p in self.matrices.items()}
        self.rates = {name: (rates or {}).get(name, 1.0) for name in self.matrices}
        self.rows = {name: list(rows.get(name, [p.shape[0]])) for name, p in self.matrices.items()}

    def grad_norm(self) -> Tensor:
        grads = [p.grad for p in (*self.matrices.values(), *self.rest.parameters.values()) if p.grad is not None]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        return norm

    @torch.no_grad()
    def step(self, lr: float, grad_factor: float = 1.0) -> None:
        self.rest.step(lr, grad_factor)
        names = [name for name, p in self.matrices.items() if p.grad is not None]
        if not names:
            return
        grads = [g for name in names if (g := self.matrices[name].grad) is not None]
        if grad_factor != 1.0:
            torch._foreach_mul_(grads, grad_factor)
        beta = self.settings.momentum
        momentum = [self.momentum[name] for name in names]
        torch._foreach_lerp_(momentum, grads, 1 - beta)
        torch._foreach_lerp_(grads, momentum, beta)  # Nesterov: one step ahead of the momentum
        if self.settings.weight_decay:
            kept = [1 - lr * self.rates[name] * self.settings.weight_decay for name in names]
            torch._foreach_mul_([self.matrices[name] for name in names], kept)
        for wanted, parts in self._by_shape(names, grads).items():
            updates = orthogonal(torch.stack([part.grad for part in parts]).to(self.products), self.settings.orthogonal_steps)
            moves, rates = list(updates.to(parts[0].matrix.dtype).unbind()), [part.rate for part in parts]
            if any(rate != 1.0 for rate in rates):
                torch._foreach_mul_(moves, rates)
            # A tall matrix turns few directions into many: its update is made larger, so that it moves its outputs as far.
            far = lr * max(1.0, wanted[0] / wanted[1]) ** 0.5
            torch._foreach_add_([part.matrix for part in parts], moves, alpha=-far)

    def zero_grad(self) -> None:
        self.rest.zero_grad()
        for p in self.matrices.values():
            p.grad = None

    def state_tensors(self) -> dict[str, Tensor]:
        return self.rest.state_tensors() | {f"{name}.momentum": tensor for name, tensor in self.momentum.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        take_over(self.state_tensors(), tensors)
        self.rest.count = int(tensors["step"])

    def _by_shape(self, names: list[str], grads: list[Tensor]) -> dict[tuple[int, int], list["_Part"]]:
        """Every matrix, joined ones part by part, gathered by shape."""
        gathered: dict[tuple[int, int], list[_Part]] = defaultdict(list)
        for name, grad in zip(names, grads, strict=True):
            rows = self.rows[name]
            for part, moved in zip(self.matrices[name].split(rows), grad.split(rows), strict=True):
                gathered[part.shape[0], part.shape[1]].append(_Part(part, moved, self.rates[name]))
        return gathered


class _Part(NamedTuple):
    matrix: Tensor
    grad: Tensor
    rate: float

"""Muon: the update of a matrix is its orthogonalized momentum, so that it has the same size in every direction.

Orthogonalization takes a few steps of an odd polynomial, X <- a X + (b (X X^T) + c (X X^T)^2) X, which drives all
singular values towards 1. Matrices of one shape are processed together. Parameters that are not matrices of a layer use
AdamW; LoRA adapters too, since the change of a product is orthogonalized, not its factors, and the gradient of A is 0
at first, of which orthogonalization would make a full step out of rounding errors. Memory: one tensor per matrix, two
for others.

Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the coefficients of each step:
Amsel et al. 2025, "The Polar Express", arXiv:2505.16932, section 4, for singular values in [0.001, 1].
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from mini_tf.optimizers import Parameter
from mini_tf.optimizers._adam import AdamSettings, AdamW

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
"""Inputs are scaled slightly below the limit, since a singular value above the interval would explode."""


class Settings(AdamSettings):
    lr: float = Field(1e-3, gt=0, le=10)
    """Peak learning rate of matrices; try 0.02."""
    head_lr: float | None = Field(None, gt=0, le=10)
    """Peak learning rate of an untied output layer, norms and biases; default lr."""
    momentum: float = Field(0.95, ge=0, lt=1)
    """Decay rate of the momentum."""
    orthogonal_steps: int = Field(5, ge=1, le=20)
    """Steps of the orthogonalization; 3 are enough for short runs."""

    def rate_of(self, role: str) -> float:
        """Vectors and adapters use AdamW with the head's learning rate."""
        return super().rate_of("head" if role in ("vector", "adapter") else role)

    def moments(self, parameter: Parameter) -> dict[str, Tensor]:
        if parameter.role != "matrix":
            return super().moments(parameter)
        return {"momentum": parameter.zeros()}

    def build(self, parameters: Mapping[str, Parameter], products: torch.dtype = torch.float32) -> "Muon":
        return Muon(self, parameters, products)


def orthogonal(matrices: Tensor, n_steps: int) -> Tensor:
    """(n, R, C) -> approximately the nearest (semi-)orthogonal matrices; with more steps singular values are closer to
    1.
    """
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


class Muon(AdamW):
    """matrices: parameters for Muon; AdamW updates the rest. products: type of the matrix products in `orthogonal`."""

    def __init__(self, settings: Settings, parameters: Mapping[str, Parameter], products: torch.dtype = torch.float32) -> None:
        self.matrices = {name: p for name, p in parameters.items() if p.role == "matrix"}
        rest = {name: p for name, p in parameters.items() if name not in self.matrices}
        super().__init__(settings, self.matrices | rest)
        self.settings = settings
        self.products = torch.float32 if products == torch.float16 else products  # the powers would overflow

    def move(self, moving: Mapping[str, Parameter], lr: float) -> None:
        super().move({name: p for name, p in moving.items() if name not in self.matrices}, lr)
        matrices = {name: p for name, p in moving.items() if name in self.matrices}
        if not matrices:
            return
        tensors, grads = [p.tensor for p in matrices.values()], [p.grad for p in matrices.values()]
        beta = self.settings.momentum
        momentum = [self.state[name]["momentum"] for name in matrices]
        torch._foreach_lerp_(momentum, grads, 1 - beta)
        torch._foreach_lerp_(grads, momentum, beta)  # Nesterov momentum
        if self.settings.weight_decay:
            kept = [1 - lr * p.rate * self.settings.decay_of(p) for p in matrices.values()]
            torch._foreach_mul_(tensors, kept)
        for wanted, parts in _by_shape(matrices).items():
            updates = orthogonal(torch.stack([part.grad for part in parts]).to(self.products), self.settings.orthogonal_steps)
            moves, rates = list(updates.to(parts[0].matrix.dtype).unbind()), [part.rate for part in parts]
            if any(rate != 1.0 for rate in rates):
                torch._foreach_mul_(moves, rates)
            # The update of a tall matrix is scaled up, so that it changes its outputs as much.
            far = lr * max(1.0, wanted[0] / wanted[1]) ** 0.5
            torch._foreach_add_([part.matrix for part in parts], moves, alpha=-far)


class _Part(NamedTuple):
    matrix: Tensor
    grad: Tensor
    rate: float


def _by_shape(matrices: Mapping[str, Parameter]) -> dict[tuple[int, int], list[_Part]]:
    """All matrices, joined ones by part, grouped by shape."""
    gathered: dict[tuple[int, int], list[_Part]] = defaultdict(list)
    for p in matrices.values():
        rows = p.rows or p.tensor.shape[:1]
        for part, moved in zip(p.tensor.split(rows), p.grad.split(rows), strict=True):
            gathered[part.shape[0], part.shape[1]].append(_Part(part, moved, p.rate))
    return gathered

"""Muon: SGD with momentum whose update of each weight matrix is orthogonalized.

Orthogonalization is a few Newton-Schulz steps, X <- a X + (b (X X^T) + c (X X^T)^2) X, which drive all singular values
towards 1; matrices of equal shape are batched. All parameters that are not a matrix of a layer use AdamW. So do LoRA
adapters: the update of B A should be orthogonal, not that of its factors, and the gradient of A starts at 0, whose
rounding errors would become a full step. Memory: one tensor per matrix, two for other parameters.

Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the coefficients of each step:
Amsel et al. 2025, "The Polar Express", arXiv:2505.16932, section 4, for singular values in [0.001, 1].
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from mini_tf.optimizers import Number, Parameter
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
"""(a, b, c) of each step; the last triple is repeated."""
SAFETY = 1.01
"""Inputs are scaled down by this: singular values above the interval of a polynomial would diverge."""
GRAM_STEPS = 3
"""Steps in a row on the Gram matrix alone: its rounding errors grow with the square of the coefficients a."""


class Settings(AdamSettings):
    lr: float = Field(1e-3, gt=0, le=10)
    """Peak learning rate of matrices; try 0.02."""
    head_lr: float | None = Field(None, gt=0, le=10)
    """Peak learning rate of an untied output projection, norms, biases and adapters; default lr."""
    momentum: float = Field(0.95, ge=0, lt=1)
    """Decay rate of the momentum."""
    orthogonal_steps: int = Field(5, ge=1, le=20)
    """Newton-Schulz steps per update; 3 are enough for short runs."""

    def lr_of(self, role: str) -> float:
        """Vectors and adapters use AdamW too, with the learning rate of the head."""
        return super().lr_of("head" if role in ("vector", "adapter") else role)

    def moments(self, parameter: Parameter) -> dict[str, Tensor]:
        if parameter.role != "matrix":
            return super().moments(parameter)
        return {"momentum": parameter.zeros()}

    def needs_whole(self, parameter: Parameter) -> bool:
        return parameter.role == "matrix"

    def build(self, parameters: Mapping[str, Parameter], matmul_dtype: torch.dtype = torch.float32) -> "Muon":
        return Muon(self, parameters, matmul_dtype)


def orthogonalize(matrices: Tensor, n_steps: int) -> Tensor:
    """Approximately the nearest (semi-)orthogonal matrices of a batch (n, R, C); more steps bring singular values
    nearer to 1."""
    wide = matrices if matrices.shape[-2] <= matrices.shape[-1] else matrices.mT
    exact = torch.float32 if wide.dtype == torch.bfloat16 else wide.dtype
    norms = torch.linalg.vector_norm(wide, dim=(-2, -1), keepdim=True, dtype=exact)
    x = wide / (norms * SAFETY + 1e-7).to(wide.dtype)
    # Products of R x R matrices are fewer operations than those of x if it is wide; bf16 is too coarse for them.
    group = GRAM_STEPS if 2 * x.shape[-1] > 3 * x.shape[-2] and wide.dtype == exact else 1
    for start in range(0, n_steps, group):
        x = _several_steps(x, range(start, min(start + group, n_steps)))
    result: Tensor = x if wide is matrices else x.mT
    return result


def _several_steps(x: Tensor, steps: range) -> Tensor:
    """Newton-Schulz steps on x (n, R, C), which is multiplied once: each step is a polynomial in the Gram matrix G, and
    so is the next G, P G P with P = a + Q and Q = b G + c G^2. All of them commute."""
    gram = x @ x.mT
    factor, rest = 1.0, torch.zeros_like(gram)  # the steps so far: x -> factor x + rest x
    for step in steps:
        a, b, c = COEFFICIENTS[min(step, len(COEFFICIENTS) - 1)]
        if step < len(COEFFICIENTS) - 1:
            a, b, c = a / SAFETY, b / SAFETY**3, c / SAFETY**5
        q = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        rest = q if step == steps[0] else torch.baddbmm(a * rest + factor * q, q, rest)
        factor *= a
        if step != steps[-1]:
            gram = torch.baddbmm(gram, q, gram, beta=a)
            gram = torch.baddbmm(gram, q, gram, beta=a)
    return torch.baddbmm(x, rest, x, beta=factor)


class Muon(AdamW):
    """matrices: parameters updated by Muon; AdamW updates the others. matmul_dtype: dtype of the products in
    `orthogonalize`."""

    def __init__(
        self, settings: Settings, parameters: Mapping[str, Parameter], matmul_dtype: torch.dtype = torch.float32
    ) -> None:
        self.matrices = {name: p for name, p in parameters.items() if p.role == "matrix"}
        rest = {name: p for name, p in parameters.items() if name not in self.matrices}
        super().__init__(settings, self.matrices | rest)
        self.settings = settings
        self.matmul_dtype = torch.float32 if matmul_dtype == torch.float16 else matmul_dtype  # fp16 would overflow

    def update(self, parameters: Mapping[str, Parameter], lr: Number) -> None:
        super().update({name: p for name, p in parameters.items() if name not in self.matrices}, lr)
        matrices = {name: p for name, p in parameters.items() if name in self.matrices}
        if not matrices:
            return
        grads = [p.grad for p in matrices.values()]
        beta = self.settings.momentum
        momentum = [self.state[name]["momentum"] for name in matrices]
        torch._foreach_lerp_(momentum, grads, 1 - beta)
        torch._foreach_lerp_(grads, momentum, beta)  # Nesterov momentum
        if self.settings.weight_decay:
            decayed: dict[tuple[float, float], list[Tensor]] = defaultdict(list)
            for p in matrices.values():
                decayed[p.lr_scale, self.settings.weight_decay_of(p)].append(p.tensor)
            for (lr_scale, decay), tensors in decayed.items():
                torch._foreach_mul_(tensors, 1 - lr * lr_scale * decay)
        for (n_rows, n_columns), group in _by_shape(matrices).items():
            updates = orthogonalize(
                torch.stack([part.grad for part in group]).to(self.matmul_dtype), self.settings.orthogonal_steps
            )
            steps, scales = list(updates.to(group[0].matrix.dtype).unbind()), [part.lr_scale for part in group]
            if any(scale != 1.0 for scale in scales):
                torch._foreach_mul_(steps, scales)
            # Scale the update of a tall matrix so that its outputs have the same RMS as its inputs.
            step_size = lr * max(1.0, n_rows / n_columns) ** 0.5
            if isinstance(step_size, Tensor):  # alpha must be a number
                torch._foreach_mul_(steps, step_size)
                torch._foreach_add_([part.matrix for part in group], steps, alpha=-1)
            else:
                torch._foreach_add_([part.matrix for part in group], steps, alpha=-step_size)


class _Matrix(NamedTuple):
    matrix: Tensor
    grad: Tensor
    lr_scale: float


def _by_shape(matrices: Mapping[str, Parameter]) -> dict[tuple[int, int], list[_Matrix]]:
    """The matrices grouped by shape; a fused one is split first."""
    groups: dict[tuple[int, int], list[_Matrix]] = defaultdict(list)
    for p in matrices.values():
        sizes = p.split_sizes or p.tensor.shape[:1]
        for matrix, grad in zip(p.tensor.split(sizes), p.grad.split(sizes), strict=True):
            groups[matrix.shape[0], matrix.shape[1]].append(_Matrix(matrix, grad, p.lr_scale))
    return groups

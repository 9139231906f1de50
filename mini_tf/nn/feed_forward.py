"""The feed-forward layer: each token by itself, d_model -> d_ff -> d_model.

Source: Vaswani et al. 2017, section 3.3; GELU: arXiv:1606.08415; squared ReLU: So et al. 2021, arXiv:2109.08668;
SwiGLU: Shazeer 2020, arXiv:2002.05202 (its `up` makes gate and value at once, so it has 1.5 times the parameters).
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mini_tf.nn.joined import Joined

Activation = Literal["gelu", "gelu_tanh", "relu", "relu2", "swiglu"]


def activate(kind: Activation, x: Tensor) -> Tensor:
    """(..., F) -> (..., F), for swiglu (..., 2 F) -> (..., F)."""
    if kind == "gelu":
        return F.gelu(x)
    if kind == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    if kind == "relu":
        return F.relu(x)
    if kind == "relu2":
        squared: Tensor = _SquaredReLU.apply(x) if torch.is_grad_enabled() else F.relu(x).square_()
        return squared
    gate, value = x.chunk(2, dim=-1)
    return F.silu(gate) * value


class _SquaredReLU(torch.autograd.Function):
    """max(x, 0)^2, whose slope is twice max(x, 0): one tensor kept and two passes back, where autograd keeps two and takes four."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = F.relu(x)
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        dx: Tensor = (dy * positive).mul_(2)
        return dx


class FeedForward(nn.Module):
    """up, activation, down: (B, L, D) -> (B, L, D)."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation, bias: bool) -> None:
        super().__init__()
        self.activation = activation
        self.up = Joined(d_model, (d_ff, d_ff) if activation == "swiglu" else (d_ff,), bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(activate(self.activation, self.up(x)))
        return y

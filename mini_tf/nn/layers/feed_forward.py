"""The feed-forward layer, d_model -> d_ff -> d_model.

Source: Vaswani et al. 2017, section 3.3; GELU: arXiv:1606.08415; squared ReLU: So et al. 2021, arXiv:2109.08668;
SwiGLU, GEGLU, ReGLU: Shazeer 2020, arXiv:2002.05202 (`up` computes gate and value together: 1.5 times the parameters).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mini_tf.nn.layers.kernels import FusedLinear, ResidualLinear


class _SquaredReLU(torch.autograd.Function):
    """max(x, 0)^2 with gradient 2 max(x, 0): saves one tensor for the backward pass, where autograd saves two."""

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


def _squared_relu(x: Tensor) -> Tensor:
    squared: Tensor = _SquaredReLU.apply(x) if torch.is_grad_enabled() else F.relu(x).square_()
    return squared


def _swiglu(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, dim=-1)
    return F.silu(gate) * value


def _geglu(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, dim=-1)
    return F.gelu(gate) * value


def _geglu_tanh(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh") * value


def _reglu(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, dim=-1)
    return F.relu(gate) * value


class ActivationFunction(NamedTuple):
    """(..., n_inputs F) -> (..., F); n_inputs is 2 for gated activations."""

    function: Callable[[Tensor], Tensor]
    n_inputs: int = 1


ACTIVATIONS = {
    "gelu": ActivationFunction(F.gelu),
    "gelu_tanh": ActivationFunction(lambda x: F.gelu(x, approximate="tanh")),
    "relu": ActivationFunction(F.relu),
    "relu2": ActivationFunction(_squared_relu),
    "silu": ActivationFunction(F.silu),
    "swiglu": ActivationFunction(_swiglu, n_inputs=2),
    "geglu": ActivationFunction(_geglu, n_inputs=2),
    "geglu_tanh": ActivationFunction(_geglu_tanh, n_inputs=2),
    "reglu": ActivationFunction(_reglu, n_inputs=2),
}
"""Activations by the names used in recipes."""
if TYPE_CHECKING:
    Activation = str
else:
    Activation = Literal[tuple(ACTIVATIONS)]


def activate(kind: Activation, x: Tensor) -> Tensor:
    """(..., n_inputs F) -> (..., F)."""
    return ACTIVATIONS[kind].function(x)


class FeedForward(nn.Module):
    """up projection, activation, down projection: (B, L, D) -> (B, L, D).

    At each token y = coefficients(x) @ values + value_bias: memory i has the coefficient m_i, how much of it is added,
    and the value v_i. gated: a coefficient is a product with a gate, so it has either sign, and so has its value's
    meaning. Source: Geva et al. 2021, arXiv:2012.14913, section 2.
    """

    def __init__(self, d_model: int, d_ff: int, activation: Activation, bias: bool) -> None:
        super().__init__()
        self.activation = activation
        self.gated = ACTIVATIONS[activation].n_inputs > 1
        self.up = FusedLinear(d_model, (d_ff,) * ACTIVATIONS[activation].n_inputs, bias)
        self.down = ResidualLinear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(self.coefficients(x))
        return y

    def coefficients(self, x: Float[Tensor, "*at D"]) -> Float[Tensor, "*at F"]:
        return activate(self.activation, self.up(x))

    @property
    def values(self) -> Float[Tensor, "F D"]:
        """As a view of the parameters."""
        return self.down.weight.T

    @property
    def value_bias(self) -> Float[Tensor, " D"] | None:
        return self.down.bias

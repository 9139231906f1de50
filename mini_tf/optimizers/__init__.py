"""Optimizers: update the parameters from their gradients and the learning rate of the step.

This file is the contract. Every other file of this package is one optimizer, named by the word that a recipe writes. It
has `Settings` (recipe keys, state tensors per parameter, `build`) and a subclass of `Optimizer` with one method,
`update`. State dict, gradient norm, clipping and the memory estimate are shared. `mini_tf.testing.optimizers` tests
every optimizer against this contract.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from mini_tf.recipe.kind_settings import OptimizerSettings

__all__ = ["IMPLEMENTATION", "Number", "Optimizer", "OptimizerSettings", "Parameter", "Role", "on_meta", "state_bytes"]

Role = Literal["matrix", "embedding", "features", "head", "adapter", "vector"]
"""matrix: a 2D weight inside a layer; embedding: an embedding table; features: weights of n-grams beside the network, a
row each; head: the output projection; adapter: A or B of LoRA; vector: norms, biases and all other parameters."""

Number = float | Tensor
"""A tensor has no axes and is on the device of the parameters."""

IMPLEMENTATION = 1
"""Incremented when the arithmetic of a step changes: a run from another implementation does not resume bit for bit."""


class Parameter(NamedTuple):
    """A trainable tensor, like an entry of a torch parameter group.

    lr_scale: its learning rate as a multiple of the `lr` of `Optimizer.step`. split_sizes: rows of each matrix of a
    fused one, e.g. of q, k and v; empty if it is not fused.
    """

    tensor: Tensor
    role: Role = "matrix"
    lr_scale: float = 1.0
    split_sizes: tuple[int, ...] = ()

    @property
    def grad(self) -> Tensor:
        """The gradient; it must exist."""
        assert self.tensor.grad is not None
        return self.tensor.grad

    def zeros(self, *shape: int) -> Tensor:
        """A tensor of zeros in the parameter's dtype and device, by default of its shape."""
        # zeros_like on the meta device imports modules of torch for a second.
        return torch.zeros(shape or self.tensor.shape, dtype=self.tensor.dtype, device=self.tensor.device)


class Optimizer(ABC):
    """Updates parameters, by name.

    state: the tensors of `Settings.moments` by parameter name. step_count: shared by all parameters, also on their
    device as `step_tensor`. The gradient norm is summed in the order of `parameters`.
    """

    def __init__(self, settings: OptimizerSettings, parameters: Mapping[str, Parameter]) -> None:
        self.parameters = dict(parameters)
        self.state = {name: settings.moments(p) for name, p in self.parameters.items()}
        self.step_count = 0
        device = next(
            (p.tensor.device for p in self.parameters.values()), torch.device("cpu")
        )  # there may be no parameters
        self.step_tensor = torch.zeros((), device=device)

    @abstractmethod
    def update(self, parameters: Mapping[str, Parameter], lr: Number) -> None:
        """Update these parameters and their state in place, each with `lr` times its `lr_scale`.

        lr: a tensor only if `CAPTURABLE`. All have a gradient, which may be overwritten. `step_count` is this step,
        from 1. Runs under no_grad.
        """

    def step(self, lr: float, grad_factor: float = 1.0) -> None:
        """Update every parameter that has a gradient, after multiplying the gradients by `grad_factor` (clipping)."""
        self.set_step(self.step_count + 1)
        self.apply(lr, grad_factor)

    def set_step(self, step_count: int) -> None:
        """Begin a step. The tensor is filled, not copied, which would wait for the device."""
        self.step_count = step_count
        self.step_tensor.fill_(step_count)

    @torch.no_grad()
    def apply(self, lr: Number, grad_factor: Number) -> None:
        """The rest of `step`, whose numbers may be tensors if `CAPTURABLE`."""
        updated = {name: p for name, p in self.parameters.items() if p.tensor.grad is not None}
        if updated and (isinstance(grad_factor, Tensor) or grad_factor != 1.0):
            torch._foreach_mul_([p.grad for p in updated.values()], grad_factor)
        self.update(updated, lr)

    def grad_norm(self) -> Tensor:
        """The global L2 norm of the gradient as a 0-dim tensor, without a device synchronization."""
        grads = [p.tensor.grad for p in self.parameters.values() if p.tensor.grad is not None]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        return norm

    def zero_grad(self) -> None:
        for p in self.parameters.values():
            p.tensor.grad = None

    def state_tensors(self) -> dict[str, Tensor]:
        """The state dict: `step` and PARAMETER.MOMENT, not copied."""
        tensors = {
            f"{name}.{moment}": tensor for name, moments in self.state.items() for moment, tensor in moments.items()
        }
        return {"step": torch.tensor(self.step_count), **tensors}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the tensors of `state_tensors`. Raises ValueError before any copy if names, shapes or dtypes differ."""
        expected = self.state_tensors()
        if differing := sorted(expected.keys() ^ tensors.keys()):
            shown = ", ".join(differing[:5])
            raise ValueError(
                f"optimizer state does not match the model: {shown} ({len(differing)} names missing or unexpected)"
            )
        for name, tensor in expected.items():
            saved = tensors[name]
            if (saved.shape, saved.dtype) != (tensor.shape, tensor.dtype):
                raise ValueError(
                    f"optimizer state {name}: {saved.dtype} {list(saved.shape)} must be {tensor.dtype}"
                    f" {list(tensor.shape)}"
                )
        for name, tensor in expected.items():
            self._copy(tensor, tensors[name])
        self.step_count = int(tensors["step"])

    def _copy(self, tensor: Tensor, saved: Tensor) -> None:
        """Copy a saved tensor into one of `state_tensors`."""
        tensor.copy_(saved)


def state_bytes(settings: OptimizerSettings, parameters: Mapping[str, Parameter]) -> int:
    """Bytes of the optimizer state for these parameters; nothing is allocated."""
    moments = (moment for p in parameters.values() for moment in settings.moments(on_meta(p)).values())
    return sum(moment.numel() * moment.element_size() for moment in moments)


def on_meta(parameter: Parameter) -> Parameter:
    """The parameter without numbers."""
    tensor = parameter.tensor
    return parameter._replace(tensor=torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"))

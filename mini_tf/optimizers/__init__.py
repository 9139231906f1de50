"""Optimizers: how the weights move, given their gradients and the learning rate of the step.

The contract stands here; every other file of this package is one optimizer, and its name is the word a recipe writes. A file has
`Settings` (its keys, the tensors it keeps for a parameter, what it builds) and a subclass of `Optimizer` with one method, `move`.
Saving, loading, the gradient norm, clipping and the memory foretold are the same for all. `mini_tf.testing.optimizers` holds
every kind to this contract.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from mini_tf.recipe import kind_settings

Role = Literal["matrix", "embedding", "head", "adapter", "vector"]
"""matrix: a product inside the layers, of two axes; embedding: a table that is looked up; head: the output table, of words or of a task's
classes; adapter: a narrow matrix of LoRA; vector: norms, biases and all else."""

IMPLEMENTATION = 1
"""Counts up where a step's arithmetic changes: a run that was begun with another one does not continue to the same bits."""


class Parameter(NamedTuple):
    """A trainable tensor, and what an optimizer knows of it.

    rate: its learning rate, as a multiple of the one that is given to `step`. rows: of a matrix that is several joined into one,
    the rows that belong to each; empty: it is one.
    """

    tensor: Tensor
    role: Role = "matrix"
    rate: float = 1.0
    rows: tuple[int, ...] = ()

    @property
    def grad(self) -> Tensor:
        """The gradient, of one that has some."""
        assert self.tensor.grad is not None
        return self.tensor.grad

    def zeros(self, *shape: int) -> Tensor:
        """A tensor of zeros for the state, of the parameter's type and device; its shape where none is given."""
        # On the meta device functions such as zeros_like import a second's worth of torch.
        return torch.zeros(shape or self.tensor.shape, dtype=self.tensor.dtype, device=self.tensor.device)


class OptimizerSettings(kind_settings.OptimizerSettings):
    def moments(self, parameter: Parameter) -> dict[str, Tensor]:
        """The tensors kept for a parameter between steps, as they are before the first one: on its device, of any shape.

        The parameter may lie on the meta device: the memory that training needs is known from here.
        """
        raise NotImplementedError

    def build(self, parameters: Mapping[str, Parameter], products: torch.dtype = torch.float32) -> "Optimizer":
        """products: the type of the large matrix products of training, where the optimizer has some too."""
        raise NotImplementedError

    def decay_of(self, parameter: Parameter) -> float:
        """The weight decay of a parameter: 0 for vectors (norms, biases) and for embeddings, where a token that is seldom seen
        would shrink for nothing."""
        free = parameter.role in ("embedding", "vector") or parameter.tensor.dim() < 2
        return 0.0 if free else self.weight_decay


class Optimizer(ABC):
    """Moves parameters, each known by its name. One count of steps serves all of them.

    state: by parameter name, what `Settings.moments` gave. The sum of the gradient norm runs in the order of `parameters`.
    """

    def __init__(self, settings: OptimizerSettings, parameters: Mapping[str, Parameter]) -> None:
        self.parameters = dict(parameters)
        self.state = {name: settings.moments(p) for name, p in self.parameters.items()}
        self.count = 0

    @abstractmethod
    def move(self, moving: Mapping[str, Parameter], lr: float) -> None:
        """Move the parameters that have a gradient, each by `lr` times its own rate, and bring their state up to date, in place.

        `count` is the number of this step, from 1. Gradients may be overwritten. Autograd is off.
        """

    @torch.no_grad()
    def step(self, lr: float, grad_factor: float = 1.0) -> None:
        """Move every parameter that has a gradient; the gradient is multiplied by `grad_factor` first (clipping)."""
        self.count += 1
        moving = {name: p for name, p in self.parameters.items() if p.tensor.grad is not None}
        if moving and grad_factor != 1.0:
            torch._foreach_mul_([p.grad for p in moving.values()], grad_factor)
        self.move(moving, lr)

    def grad_norm(self) -> Tensor:
        """The global norm of the gradient, as a tensor without axes: nothing waits for the device."""
        grads = [p.tensor.grad for p in self.parameters.values() if p.tensor.grad is not None]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        return norm

    def zero_grad(self) -> None:
        for p in self.parameters.values():
            p.tensor.grad = None

    def state_tensors(self) -> dict[str, Tensor]:
        """All there is to save: `step`, and NAME.MOMENT of each parameter; the tensors themselves, not copies."""
        kept = {f"{name}.{moment}": tensor for name, moments in self.state.items() for moment, tensor in moments.items()}
        return {"step": torch.tensor(self.count), **kept}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy what `state_tensors` gave; ValueError where names, shapes or types differ, before anything is copied."""
        own = self.state_tensors()
        if strange := sorted(own.keys() ^ tensors.keys()):
            raise ValueError(f"optimizer state does not fit the model: {', '.join(strange[:5])} ({len(strange)} names on one side only)")
        for name, tensor in own.items():
            found = tensors[name]
            if (found.shape, found.dtype) != (tensor.shape, tensor.dtype):
                raise ValueError(f"optimizer state {name}: {found.dtype} {list(found.shape)} must be {tensor.dtype} {list(tensor.shape)}")
        for name, tensor in own.items():
            tensor.copy_(tensors[name])
        self.count = int(tensors["step"])


def state_bytes(settings: Any, parameters: Mapping[str, Parameter]) -> int:
    """Memory of what an optimizer of these settings keeps for the parameters; nothing is allocated for it."""
    tensors = {name: torch.empty(p.tensor.shape, dtype=p.tensor.dtype, device="meta") for name, p in parameters.items()}
    sketches = [p._replace(tensor=tensors[name]) for name, p in parameters.items()]
    return sum(moment.numel() * moment.element_size() for p in sketches for moment in settings.moments(p).values())

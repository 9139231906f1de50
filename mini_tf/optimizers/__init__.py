"""Optimizers: updates of the parameters, given gradients and the learning rate of the step.

The contract is here; every other file of this package is one optimizer, named by the file name in a recipe. A file has
`Settings` (its keys, its state per parameter, what it builds) and a subclass of `Optimizer` with one method, `move`.
Saving, loading, gradient norm, clipping and the memory estimate are shared. `mini_tf.testing.optimizers` tests the
contract.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from mini_tf.recipe import kind_settings

Role = Literal["matrix", "embedding", "head", "adapter", "vector"]
"""matrix: a weight with two axes inside the layers; embedding: a lookup table; head: the output layer of the vocabulary
or of a task; adapter: a low-rank matrix of LoRA; vector: norms, biases and all else.
"""

IMPLEMENTATION = 1
"""Incremented when the arithmetic of a step changes: a run of another version does not continue bit-exactly."""


class Parameter(NamedTuple):
    """A trainable tensor as the optimizer sees it.

    rate: its learning rate as a multiple of that of `step`. rows: of a matrix that joins several, the rows of each;
    empty: one.
    """

    tensor: Tensor
    role: Role = "matrix"
    rate: float = 1.0
    rows: tuple[int, ...] = ()

    @property
    def grad(self) -> Tensor:
        """The gradient; call only if there is one."""
        assert self.tensor.grad is not None
        return self.tensor.grad

    def zeros(self, *shape: int) -> Tensor:
        """Zeros for the state, of the parameter's type and device; its shape if none is given."""
        # On the meta device functions such as zeros_like import a second's worth of torch.
        return torch.zeros(shape or self.tensor.shape, dtype=self.tensor.dtype, device=self.tensor.device)


class OptimizerSettings(kind_settings.OptimizerSettings):
    def moments(self, parameter: Parameter) -> dict[str, Tensor]:
        """The tensors kept for a parameter between steps, in their initial state, on its device.

        The parameter may be on the meta device, to estimate memory.
        """
        raise NotImplementedError

    def build(self, parameters: Mapping[str, Parameter], products: torch.dtype = torch.float32) -> "Optimizer":
        """products: the type of large matrix products in training, if the optimizer has some too."""
        raise NotImplementedError

    def decay_of(self, parameter: Parameter) -> float:
        """The weight decay of a parameter: 0 for vectors (norms, biases) and embeddings, where rare tokens would
        shrink.
        """
        free = parameter.role in ("embedding", "vector") or parameter.tensor.dim() < 2
        return 0.0 if free else self.weight_decay


class Optimizer(ABC):
    """Updates parameters, each identified by its name; one count of steps for all.

    state: by parameter name, from `Settings.moments`. The gradient norm is summed in the order of `parameters`.
    """

    def __init__(self, settings: OptimizerSettings, parameters: Mapping[str, Parameter]) -> None:
        self.parameters = dict(parameters)
        self.state = {name: settings.moments(p) for name, p in self.parameters.items()}
        self.count = 0

    @abstractmethod
    def move(self, moving: Mapping[str, Parameter], lr: float) -> None:
        """Update the parameters with a gradient, each by `lr` times its own rate, and their state, in place.

        `count` is the number of this step, from 1. Gradients may be overwritten. Autograd is off.
        """

    @torch.no_grad()
    def step(self, lr: float, grad_factor: float = 1.0) -> None:
        """Update every parameter with a gradient; gradients are multiplied by `grad_factor` first (clipping)."""
        self.count += 1
        moving = {name: p for name, p in self.parameters.items() if p.tensor.grad is not None}
        if moving and grad_factor != 1.0:
            torch._foreach_mul_([p.grad for p in moving.values()], grad_factor)
        self.move(moving, lr)

    def grad_norm(self) -> Tensor:
        """The global gradient norm, a tensor without axes; no synchronization with the device."""
        grads = [p.tensor.grad for p in self.parameters.values() if p.tensor.grad is not None]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        return norm

    def zero_grad(self) -> None:
        for p in self.parameters.values():
            p.tensor.grad = None

    def state_tensors(self) -> dict[str, Tensor]:
        """The state to save: `step`, and NAME.MOMENT of each parameter; no copies."""
        kept = {f"{name}.{moment}": tensor for name, moments in self.state.items() for moment, tensor in moments.items()}
        return {"step": torch.tensor(self.count), **kept}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy what `state_tensors` returned; ValueError if names, shapes or types differ, before anything is copied."""
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
    """Memory of the optimizer's state for these parameters; nothing is allocated."""
    tensors = {name: torch.empty(p.tensor.shape, dtype=p.tensor.dtype, device="meta") for name, p in parameters.items()}
    sketches = [p._replace(tensor=tensors[name]) for name, p in parameters.items()]
    return sum(moment.numel() * moment.element_size() for p in sketches for moment in settings.moments(p).values())

"""What the processes of a run divide among them: nothing, the optimizer state, or weights and gradients as well.

The contract, and `optimizer`, by whole parameters, so that any optimizer can be divided: Muon needs whole matrices.
`full_sharding` is the third, and has the words of recipes. Source: Rajbhandari et al. 2020, "ZeRO", arXiv:1910.02054,
stage 1.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mini_tf.nn.weights import copy_tensors
from mini_tf.optimizers import Number, Optimizer, OptimizerSettings, Parameter, on_meta
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.reduction import REDUCTIONS, Reduction
from mini_tf.recipe.sections import Runtime


class Sharding:
    """`none`, and the contract of the others; a single process has this one."""

    DIVIDES = ""
    """What is divided, in words."""
    divides_weights = False

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group

    def describe(self, reduce: str) -> list[str]:
        """A line on several processes, for the start of a run. reduce: `runtime.reduce`."""
        divide = f", which divide {self.DIVIDES}" if self.DIVIDES else ""
        line = self.group.several(f"{{n}} processes{divide}; gradients are added by {reduce} (runtime.reduce)")
        return [line] if line else []

    def numerics(self, runtime: Runtime) -> dict[str, Any]:
        """What of several processes decides the last bits of a result."""
        if runtime.reduce == "tree":
            return {}
        how = {"reduce": runtime.reduce} | ({"shard": runtime.shard} if runtime.shard == "full" else {})
        return {"processes": self.group.world_size} | (how if self.group.world_size > 1 else {})

    def bytes_of(self, weights: int, gradients: int, state: int) -> int:
        """Bytes on each process of what has so many bytes in all."""
        return weights + gradients + state

    def gathered_bytes(self, task: nn.Module) -> int:
        """Bytes that a process has beside `bytes_of` while it computes; task may be on the meta device."""
        return 0

    def place(self, task: nn.Module, device: torch.device) -> None:
        """Move the module, whole on every process, to the device; called once, before the optimizer is built."""
        task.to(device)

    def optimizer(
        self, settings: OptimizerSettings, parameters: Mapping[str, Parameter], matmul_dtype: torch.dtype
    ) -> Optimizer:
        optimizer: Optimizer = settings.build(parameters, matmul_dtype)
        return optimizer

    def reduction(self, kind: str, optimizer: Optimizer) -> Reduction:
        """The sum of the gradients of its parameters; kind: `runtime.reduce`."""
        return REDUCTIONS[kind]([p.tensor for p in optimizer.parameters.values()], self.group)

    def gather(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """`ProcessGroup.gather` of weights or of the optimizer's state."""
        return self.group.gather(tensors)

    def copy(self, tensors: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
        """`copy_tensors` of whole tensors into weights; not collective."""
        copy_tensors(tensors, source)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Within it all weights are whole on every process, each of which may call the model as often as it likes.

        Collective. Weights that the block changes are as before after it.
        """
        yield


class OptimizerSharding(Sharding):
    """`optimizer`: memory of the state is divided by the number of processes, as far as the parameters allow."""

    DIVIDES = "the optimizer state"

    def bytes_of(self, weights: int, gradients: int, state: int) -> int:
        return weights + gradients + state // self.group.world_size

    def optimizer(
        self, settings: OptimizerSettings, parameters: Mapping[str, Parameter], matmul_dtype: torch.dtype
    ) -> Optimizer:
        return ShardedOptimizer(settings, parameters, matmul_dtype, self.group)


class ShardedOptimizer(Optimizer):
    """Each process updates its parameters and sends them to the others.

    state: real tensors of the own parameters; those of other processes are on the meta device.
    """

    def __init__(
        self,
        settings: OptimizerSettings,
        parameters: Mapping[str, Parameter],
        matmul_dtype: torch.dtype,
        group: ProcessGroup,
    ) -> None:
        self.parameters, self.step_count, self.group = dict(parameters), 0, group
        self.owners = owners({name: p.tensor.numel() for name, p in parameters.items()}, group.world_size)
        local = {name: p for name, p in self.parameters.items() if self.owners[name] == group.rank}
        self.inner: Optimizer = settings.build(local, matmul_dtype)
        self.state = {
            name: self.inner.state[name] if name in local else settings.moments(on_meta(p))
            for name, p in self.parameters.items()
        }

    def set_step(self, step_count: int) -> None:
        self.step_count = step_count
        self.inner.set_step(step_count)

    def update(self, parameters: Mapping[str, Parameter], lr: Number) -> None:
        self.inner.update({name: p for name, p in parameters.items() if self.owners[name] == self.group.rank}, lr)
        for rank in range(self.group.world_size):
            tensors = [p.tensor for name, p in self.parameters.items() if self.owners[name] == rank]
            if tensors:
                flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
                self.group.broadcast(flat, rank)
                parts = zip(flat.split([tensor.numel() for tensor in tensors]), tensors, strict=True)
                torch._foreach_copy_(tensors, [part.view_as(tensor) for part, tensor in parts])


def owners(sizes: Mapping[str, int], processes: int) -> dict[str, int]:
    """The process of each parameter: the largest first, each to the one that has the fewest numbers so far."""
    loads, owner = [0] * processes, dict[str, int]()
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        owner[name] = loads.index(min(loads))
        loads[owner[name]] += sizes[name]
    return owner

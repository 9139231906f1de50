"""The optimizer state divided among processes, each of which updates its parameters and sends them to the others.

By whole parameters, so that any optimizer can be divided: Muon needs whole matrices. Memory of the state is divided by
the number of processes, as far as the parameters allow; every process has all parameters and gradients.
Source: Rajbhandari et al. 2020, "ZeRO", arXiv:1910.02054, stage 1.
"""

from collections.abc import Mapping

import torch

from mini_tf.optimizers import Number, Optimizer, OptimizerSettings, Parameter, on_meta
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.sharding import Sharding


class ShardedOptimizer(Optimizer):
    """state: real tensors of the own parameters; those of other processes are on the meta device."""

    def __init__(
        self,
        settings: OptimizerSettings,
        parameters: Mapping[str, Parameter],
        matmul_dtype: torch.dtype,
        group: ProcessGroup,
    ) -> None:
        self.parameters, self.step_count, self.group = dict(parameters), 0, group
        self.owners = owners({name: p.tensor.numel() for name, p in parameters.items()}, group.size)
        own = {name: p for name, p in self.parameters.items() if self.owners[name] == group.rank}
        self.inner: Optimizer = settings.build(own, matmul_dtype)
        self.state = {
            name: self.inner.state[name] if name in own else settings.moments(on_meta(p))
            for name, p in self.parameters.items()
        }

    def set_step(self, step_count: int) -> None:
        self.step_count = step_count
        self.inner.set_step(step_count)

    def update(self, parameters: Mapping[str, Parameter], lr: Number) -> None:
        self.inner.update({name: p for name, p in parameters.items() if self.owners[name] == self.group.rank}, lr)
        for rank in range(self.group.size):
            tensors = [p.tensor for name, p in self.parameters.items() if self.owners[name] == rank]
            if tensors:
                flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
                self.group.broadcast(flat, rank)
                parts = flat.split([tensor.numel() for tensor in tensors])
                torch._foreach_copy_(
                    tensors, [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]
                )


def owners(sizes: Mapping[str, int], processes: int) -> dict[str, int]:
    """The process of each parameter: the largest first, each to the one that has the fewest numbers so far."""
    loads, found = [0] * processes, dict[str, int]()
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        found[name] = loads.index(min(loads))
        loads[found[name]] += sizes[name]
    return found


class OptimizerSharding(Sharding):
    """`optimizer`: the optimizer state, by whole parameters."""

    DIVIDES = "the optimizer state"

    def bytes_of(self, weights: int, gradients: int, state: int) -> int:
        return weights + gradients + state // self.group.size

    def optimizer(
        self, settings: OptimizerSettings, parameters: Mapping[str, Parameter], matmul_dtype: torch.dtype
    ) -> Optimizer:
        return ShardedOptimizer(settings, parameters, matmul_dtype, self.group)

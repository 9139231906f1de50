"""Tensors whose rows are divided among processes, as torch's DTensor, and their optimizer.

Other tensors are whole on every process. torch's modules for DTensor take half a second to import, so functions do it.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mini_tf.optimizers import Number, Optimizer, OptimizerSettings, Parameter, on_meta
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.sharding import owners


def is_divided(tensor: Tensor) -> bool:
    return hasattr(tensor, "device_mesh")  # of DTensor alone


def own_rows(tensor: Tensor) -> Tensor:
    """The rows of this process, not copied; of a whole tensor all."""
    divided: Any = tensor
    return divided.to_local().detach() if is_divided(tensor) else tensor.detach()


def divided_as(other: Tensor, own: Tensor) -> Tensor:
    """The tensor of which `own` has the rows of this process, of the shape of `other` and divided as it is."""
    from torch.distributed.tensor import DTensor, Shard

    if not isinstance(other, DTensor):
        return own
    return DTensor.from_local(
        own, other.device_mesh, [Shard(0)], run_check=False, shape=other.shape, stride=other.stride()
    )


@torch.no_grad()
def copy_whole(tensor: Tensor, whole: Tensor) -> None:
    """Copy a whole tensor into one that may be divided; not collective."""
    if not is_divided(tensor):
        tensor.copy_(whole)
        return
    mesh: Any = tensor.device_mesh  # type: ignore[attr-defined]
    parts, rank = whole.chunk(mesh.size()), mesh.get_local_rank()
    if rank < len(parts):  # the last processes may have no rows
        own_rows(tensor).copy_(parts[rank])


def gathered(tensor: Tensor) -> Tensor:
    """The whole tensor, on every process; collective."""
    divided: Any = tensor
    return divided.full_tensor() if is_divided(tensor) else tensor


class RowOptimizer(Optimizer):
    """parameters: with the rows of this process; divided: the same parameters as DTensors.

    A matrix whose update needs all of its numbers is gathered for it, and updated by one process, which has its state.
    state: DTensors, or tensors on the meta device where another process has the state.
    """

    def __init__(
        self,
        settings: OptimizerSettings,
        parameters: Mapping[str, Parameter],
        matmul_dtype: torch.dtype,
        group: ProcessGroup,
    ) -> None:
        self.group, self.step_count = group, 0
        self.divided = {name: p.tensor for name, p in parameters.items()}
        self.parameters = {name: p._replace(tensor=own_rows(p.tensor)) for name, p in parameters.items()}
        self.owners = owners(
            {name: p.tensor.numel() for name, p in parameters.items() if settings.needs_whole(p)}, group.world_size
        )
        own = {name: p for name, p in self.parameters.items() if name not in self.owners}
        own |= {name: _stand_in(p) for name, p in parameters.items() if self.owners.get(name) == group.rank}
        self.inner: Optimizer = settings.build(own, matmul_dtype)
        for name, owner in self.owners.items():  # one after the other; a moment may begin with the weights
            with group.communication():
                weights = gathered(self.divided[name].detach())
            if owner == group.rank:
                for moment, tensor in settings.moments(parameters[name]._replace(tensor=weights)).items():
                    self.inner.state[name][moment].copy_(tensor)
        self.state = {name: self._state(name, settings.moments(on_meta(p))) for name, p in parameters.items()}

    def _state(self, name: str, whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if name in self.owners:
            return dict(self.inner.state.get(name, whole))
        return {moment: divided_as(self.divided[name], tensor) for moment, tensor in self.inner.state[name].items()}

    def set_step(self, step_count: int) -> None:
        self.step_count = step_count
        self.inner.set_step(step_count)

    def update(self, parameters: Mapping[str, Parameter], lr: Number) -> None:
        self.inner.update({name: p for name, p in parameters.items() if name not in self.owners}, lr)
        for name, owner in self.owners.items():
            if name in parameters:
                self._update_whole(name, parameters[name], owner, lr)

    def _update_whole(self, name: str, parameter: Parameter, owner: int, lr: Number) -> None:
        with self.group.communication():
            weights = gathered(self.divided[name].detach())
            grad = gathered(divided_as(self.divided[name], parameter.grad))
        if owner == self.group.rank:
            weights.grad = grad
            self.inner.update({name: parameter._replace(tensor=weights)}, lr)
        self.group.broadcast(weights, owner)
        copy_whole(self.divided[name], weights)

    def grad_norm(self) -> Tensor:
        whole_here = self.group.is_rank_0  # of what every process has, one counts it
        counted = [
            p.tensor.grad
            for name, p in self.parameters.items()
            if p.tensor.grad is not None and (whole_here or p.tensor.shape != self.divided[name].shape)
        ]
        device = next(iter(self.parameters.values())).tensor.device
        square = torch.stack(torch._foreach_norm(counted)).square().sum() if counted else torch.zeros((), device=device)
        self.group.all_reduce(square)
        return square.sqrt()

    def _copy(self, tensor: Tensor, saved: Tensor) -> None:
        copy_whole(tensor, saved)


def _stand_in(parameter: Parameter) -> Parameter:
    """A whole parameter without memory, for which an optimizer makes a whole state."""
    tensor = parameter.tensor
    return parameter._replace(tensor=torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape))

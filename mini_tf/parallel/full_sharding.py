"""Weights, gradients and optimizer state divided among processes, by torch's FSDP2.

Every tensor is cut along its rows. The weights of a block are gathered before it computes, in the forward and in the
backward pass, and its gradients are added up and cut at once, in each micro-batch, so that no process has more than
one whole block. Embeddings, head and final norms are gathered for the whole micro-batch. Source: Zhao et al. 2023,
"PyTorch FSDP", arXiv:2304.11277; torch.distributed.fsdp.fully_shard.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mini_tf.nn.block import Block
from mini_tf.optimizers import Number, Optimizer, OptimizerSettings, Parameter, on_meta
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.reduction import Reduction
from mini_tf.parallel.sharding import OptimizerSharding, Sharding, owners


def is_divided(tensor: Tensor) -> bool:
    return hasattr(tensor, "device_mesh")  # of DTensor alone


def own_rows(tensor: Tensor) -> Tensor:
    """The rows of this process, not copied; of a whole tensor all."""
    divided: Any = tensor
    return divided.to_local().detach() if is_divided(tensor) else tensor.detach()


def divided_as(other: Tensor, rows: Tensor) -> Tensor:
    """The tensor of which `rows` are those of this process, of the shape of `other` and divided as it is."""
    from torch.distributed.tensor import DTensor, Shard

    if not isinstance(other, DTensor):
        return rows
    mesh, shape, stride = other.device_mesh, other.shape, other.stride()
    return DTensor.from_local(rows, mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)


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
        whole = {name: p.tensor.numel() for name, p in parameters.items() if settings.needs_whole(p)}
        self.owners = owners(whole, group.world_size)
        local = {name: p for name, p in self.parameters.items() if name not in self.owners}
        local |= {name: _stand_in(p) for name, p in parameters.items() if self.owners.get(name) == group.rank}
        self.inner: Optimizer = settings.build(local, matmul_dtype)
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
        grads = {name: p.tensor.grad for name, p in self.parameters.items() if p.tensor.grad is not None}
        whole_here = self.group.is_rank_0  # of what every process has, one counts it
        counted = [grad for name, grad in grads.items() if whole_here or grad.shape != self.divided[name].shape]
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


class FullSharding(Sharding):
    """`full`. Parameters without rows, such as a gate, and those of a mixer outside of its layers stay whole."""

    DIVIDES = "weights, gradients and optimizer state"
    divides_weights = True

    def bytes_of(self, weights: int, gradients: int, state: int) -> int:
        return (weights + gradients + state) // self.group.world_size

    def gathered_bytes(self, task: nn.Module) -> int:
        """Whole embeddings, head and final norms, and a whole block with its gradients, or their own gradients."""
        blocks = [{*part.parameters()} for part in task.modules() if isinstance(part, Block)]
        others = {*task.parameters()}.difference(*blocks)
        of_blocks = [_weight_bytes(block) + _gradient_bytes(block) for block in blocks]
        return _weight_bytes(others) + max([_gradient_bytes(others), *of_blocks])

    def place(self, task: nn.Module, device: torch.device) -> None:
        from torch.distributed.device_mesh import init_device_mesh  # takes half a second
        from torch.distributed.fsdp import FSDPModule, fully_shard

        mesh = init_device_mesh(device.type, (self.group.world_size,))
        blocks = [part for part in task.modules() if isinstance(part, Block)]
        undivided = {p for p in task.parameters() if p.dim() == 0}  # refused by fully_shard
        undivided |= {p for block in blocks for mixer in block.mixers.values() for p in mixer.parameters(recurse=False)}
        self.crossing = [mixer for block in blocks for name, mixer in block.mixers.items() if name == "cross_attn"]
        for part in (*self.crossing, *blocks, task):
            fully_shard(part, mesh=mesh, ignored_params=undivided)
        self._gather_to_recall()
        self.parts = [part for part in task.modules() if isinstance(part, FSDPModule)]
        for part in self.parts:  # losses are divided by counts of all processes, so gradients are added
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)
        # Without a backward pass torch would leave embeddings, head and final norms gathered.
        task.register_forward_hook(lambda task, inputs, output: None if torch.is_grad_enabled() else task.reshard())
        task.to(device)  # what is not divided; rows are there

    def optimizer(
        self, settings: OptimizerSettings, parameters: Mapping[str, Parameter], matmul_dtype: torch.dtype
    ) -> Optimizer:
        return RowOptimizer(settings, parameters, matmul_dtype, self.group)

    def reduction(self, kind: str, optimizer: Optimizer) -> Reduction:
        assert isinstance(optimizer, RowOptimizer)
        rows = [p.tensor for p in optimizer.parameters.values()]
        return ReduceScatter(rows, self.group, [*optimizer.divided.values()])

    def gather(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        whole_tensors = dict(tensors)
        for name, tensor in tensors.items():
            if is_divided(tensor):  # one after the other: a process may not have room for all
                with self.group.communication():
                    whole = gathered(tensor)
                whole_tensors[name] = whole.cpu() if self.group.is_rank_0 else whole.to("meta")
        return self.group.gather(whole_tensors)

    def copy(self, tensors: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            copy_whole(tensor, source[name])

    @contextmanager
    def whole(self) -> Iterator[None]:
        with self.group.communication():
            for part in self.parts:
                part.unshard()
        for mixer in self.crossing:
            del mixer.recall
        hooks = [hooks for part in self.parts for hooks in (part._forward_pre_hooks, part._forward_hooks)]
        saved = [dict(of_part) for of_part in hooks]
        for of_part in hooks:  # they would communicate, and count passes of this process alone
            of_part.clear()
        try:
            yield
        finally:
            for of_part, before in zip(hooks, saved, strict=True):
                of_part.update(before)
            for part in self.parts:
                part.reshard()
            self._gather_to_recall()

    def _gather_to_recall(self) -> None:
        """`Mixer.recall` of a source, too, which a stack calls outside of its blocks, gathers weights."""
        from torch.distributed.fsdp import register_fsdp_forward_method

        for mixer in self.crossing:
            register_fsdp_forward_method(mixer, "recall")


def _weight_bytes(parameters: Iterable[Tensor]) -> int:
    return sum(4 * p.numel() for p in parameters)


def _gradient_bytes(parameters: Iterable[Tensor]) -> int:
    return _weight_bytes(p for p in parameters if p.requires_grad)


class ReduceScatter(Reduction):
    """Takes gradients that are added up already. parameters: the rows of this process; divided: as DTensors."""

    def __init__(self, parameters: Sequence[Tensor], group: ProcessGroup, divided: Sequence[Tensor]) -> None:
        super().__init__(parameters, group)
        self.divided = divided

    def spare(self, n: int) -> int:
        return -(-n // self.group.world_size) - len(self.assigned(n))

    @contextmanager
    def micro_batch(self, micro: int, n: int) -> Iterator[None]:
        with self.group.communication(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "FSDP2-wrapped module")  # returned a view, which nothing changes in place
            yield

    def finish(self, n: int) -> None:
        for rows, whole in zip(self.parameters, self.divided, strict=True):
            if whole.grad is not None and not is_divided(whole):
                self.group.all_reduce(whole.grad)
            rows.grad = None if whole.grad is None else own_rows(whole.grad)
            whole.grad = None


SHARDINGS: dict[str, type[Sharding]] = {"none": Sharding, "optimizer": OptimizerSharding, "full": FullSharding}
"""By `runtime.shard`."""


def sharding_of(word: str, group: ProcessGroup) -> Sharding:
    """The sharding that `runtime.shard` names; a single process has nothing to divide."""
    return SHARDINGS[word](group) if group.world_size > 1 else Sharding(group)

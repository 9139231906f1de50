"""The gradient of a step out of those of its micro-batches, over one or several processes.

`sum`: each process adds its own in their order, then all add up. The last bits depend on the number of processes.
`tree`: a binary tree over the micro-batches, cut into aligned subtrees, one per process; a sum is the same to the bit
for 1, 2, 4, 8, ... processes. `overlap`: as `sum`, but communicated during the backward pass, by torch's
DistributedDataParallel.
"""

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from mini_tf.parallel.group import ProcessGroup
from mini_tf.system.errors import UsageFault


class Reduction:
    """`sum`, and the contract of the others. parameters: those that are trained."""

    def __init__(self, parameters: Sequence[Tensor], group: ProcessGroup) -> None:
        self.parameters, self.group = parameters, group

    @classmethod
    def refuse(cls, group: ProcessGroup) -> None:
        """Raise UsageFault if it cannot add over this number of processes."""

    def assigned(self, n: int) -> range:
        """The micro-batches of this process, out of `n`; contiguous, in the order of ranks."""
        rank, size = self.group.rank, self.group.world_size
        return range(n * rank // size, n * (rank + 1) // size)

    def spare(self, n: int) -> int:
        """Passes besides `assigned` whose results are dropped, where all processes call the model equally often."""
        return 0

    def forward(self, task: nn.Module) -> nn.Module:
        """The task as it is called in training."""
        return task

    def micro_batch(self, micro: int, n: int) -> AbstractContextManager[Any]:
        """Context manager around forward and backward pass of micro-batch `micro` of `n`."""
        return nullcontext()

    def add(self) -> None:
        """Called after each backward pass, with its gradients in `.grad`."""

    @torch.no_grad()
    def finish(self, n: int) -> None:
        """Called after the last micro-batch of this process: puts the gradient of all `n` into `.grad`, on each."""
        if self.group.world_size > 1:
            flat = self._flat()
            self.group.all_reduce(flat)
            self._spread(flat)

    def _flat(self) -> Tensor:
        """All gradients, and for each parameter whether it has one, in one tensor; removes them from `.grad`.

        Absent numbers are -0.0: added to any number, 0.0 and -0.0 included, it is the same to the bit.
        """
        device = self.parameters[0].device
        present = torch.tensor([-0.0 if p.grad is None else 1.0 for p in self.parameters], device=device)

        def numbers(p: Tensor) -> Tensor:
            return torch.full((p.numel(),), -0.0, device=device) if p.grad is None else p.grad.reshape(-1)

        grads = map(numbers, self.parameters)
        flat = torch.cat([*grads, present])
        for p in self.parameters:
            p.grad = None
        return flat

    def _spread(self, flat: Tensor) -> None:
        """The inverse of `_flat`; gradients become views of the tensor."""
        *grads, present = flat.split([*(p.numel() for p in self.parameters), len(self.parameters)])
        for p, grad, has_one in zip(self.parameters, grads, present.tolist(), strict=True):
            p.grad = grad.view_as(p) if has_one else None


class Tree(Reduction):
    """`tree`. A process has at most log2 of its number of micro-batches, plus one, gradients in memory."""

    def __init__(self, parameters: Sequence[Tensor], group: ProcessGroup) -> None:
        super().__init__(parameters, group)
        self._subtrees: list[tuple[int, Tensor]] = []  # (number of leaves, sum), from left to right

    @classmethod
    def refuse(cls, group: ProcessGroup) -> None:
        below = 1 << group.world_size.bit_length() - 1
        if group.world_size != below:
            fault = f"runtime.reduce: a tree needs 1, 2, 4, 8, ... processes, not {group.world_size}"
            raise UsageFault(fault, hint=f"start {below} or {2 * below} processes, or runtime.reduce=sum")

    def assigned(self, n: int) -> range:
        """An aligned subtree of the least power of two of micro-batches that suffices; the last ones may have fewer."""
        block = 1 << (-(-n // self.group.world_size) - 1).bit_length()
        return range(min(n, block * self.group.rank), min(n, block * (self.group.rank + 1)))

    @torch.no_grad()
    def add(self) -> None:
        leaves, total = 1, self._flat()
        while self._subtrees and self._subtrees[-1][0] == leaves:
            total = self._subtrees.pop()[1].add_(total)
            leaves *= 2
        self._subtrees.append((leaves, total))

    @torch.no_grad()
    def finish(self, n: int) -> None:
        total = self._subtrees.pop()[1] if self._subtrees else self._flat()
        while self._subtrees:
            total = self._subtrees.pop()[1].add_(total)
        distance = 1
        while distance < self.group.world_size:  # recursive doubling; a + b == b + a, so both have the same bits
            total = total + self.group.send_recv(total, self.group.rank ^ distance)
            distance *= 2
        self._spread(total)


class Overlap(Reduction):
    """`overlap`. In a step with fewer micro-batches than processes, gradients are added up afterwards, as by `sum`."""

    def forward(self, task: nn.Module) -> nn.Module:
        if self.group.world_size == 1:
            return task
        with self.group.communication():  # it compares the parameters of all processes
            self._ddp = summing_ddp(task)
        return self._ddp

    def micro_batch(self, micro: int, n: int) -> AbstractContextManager[Any]:
        if self.group.world_size == 1 or (n >= self.group.world_size and micro == self.assigned(n)[-1]):
            return self.group.communication()
        return self._ddp.no_sync()

    def finish(self, n: int) -> None:
        if n < self.group.world_size:
            super().finish(n)


REDUCTIONS: dict[str, type[Reduction]] = {"sum": Reduction, "tree": Tree, "overlap": Overlap}
"""By `runtime.reduce`."""


def summing_ddp(task: nn.Module) -> DistributedDataParallel:
    """The task in a DistributedDataParallel; losses are divided by counts of all processes, so gradients are added."""
    with warnings.catch_warnings():  # newer versions of torch have another name for the first option
        warnings.simplefilter("ignore", FutureWarning)
        ddp = DistributedDataParallel(
            task, broadcast_buffers=False, gradient_as_bucket_view=True, find_unused_parameters=True
        )
    ddp.register_comm_hook(None, _all_reduce)
    return ddp


def _all_reduce(state: Any, bucket: GradBucket) -> Future[Tensor]:
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])  # type: ignore[no-any-return]

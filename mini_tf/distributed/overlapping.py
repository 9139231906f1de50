"""torch's DistributedDataParallel, with sums of gradients in place of means."""

import warnings
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel


def summing_ddp(task: nn.Module) -> DistributedDataParallel:
    """The task in a DistributedDataParallel; losses are divided by counts of all processes, so gradients are added."""
    with warnings.catch_warnings():  # newer versions of torch have another name for the first option, and no other default
        warnings.simplefilter("ignore", FutureWarning)
        ddp = DistributedDataParallel(task, broadcast_buffers=False, gradient_as_bucket_view=True, find_unused_parameters=True)
    ddp.register_comm_hook(None, _add_up)
    return ddp


def _add_up(state: Any, bucket: GradBucket) -> Future[Tensor]:
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])  # type: ignore[no-any-return]

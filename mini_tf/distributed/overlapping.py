"""torch's DistributedDataParallel, with sums of gradients in place of means."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from mini_tf.distributed.group import ProcessGroup


def summing_ddp(task: nn.Module) -> DistributedDataParallel:
    """The task in a DistributedDataParallel; losses are divided by counts of all processes, so gradients are added."""
    with warnings.catch_warnings():  # newer versions of torch have another name for the first option, and no other default
        warnings.simplefilter("ignore", FutureWarning)
        ddp = DistributedDataParallel(task, broadcast_buffers=False, gradient_as_bucket_view=True, find_unused_parameters=True)
    ddp.register_comm_hook(None, _add_up)
    return ddp


@contextmanager
def failing_as(group: ProcessGroup) -> Iterator[None]:
    """Within it forward and backward passes raise ProcessLost where the sum of their gradients fails."""
    try:
        yield
    except RuntimeError as error:  # gloo has no exception of its own, and names its source file
        if not isinstance(error, dist.DistError) and "gloo/" not in str(error):
            raise
        with group.communication():
            raise


def _add_up(state: Any, bucket: GradBucket) -> Future[Tensor]:
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])  # type: ignore[no-any-return]

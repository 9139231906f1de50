"""Join the group of processes that a launcher has started: `minitf ... --nproc P`, torchrun, or a batch system."""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch.distributed as dist

from mini_tf.distributed.group import ProcessGroup
from mini_tf.distributed.torch_group import TorchGroup
from mini_tf.system.errors import Unavailable
from mini_tf.system.processes import LAUNCHER, RENDEZVOUS, place

_SET_PARENT_DEATH_SIGNAL = 1  # of Linux's prctl


@contextmanager
def joined(timeout: float, on_gpu: bool = False) -> Iterator[ProcessGroup]:
    """The group of this process, which a launcher has started.

    timeout: seconds to wait for another process. on_gpu: gradients are on a GPU. Raises Unavailable where the others
    cannot be reached.
    """
    here = place()
    _end_with_launcher()
    file = os.environ.get(RENDEZVOUS)
    if file is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            init_method="env://" if file is None else f"file://{file}",
            rank=here.rank,
            world_size=here.size,
            timeout=timedelta(seconds=timeout),
        )
    except (RuntimeError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), "")[:200]
        raise Unavailable(
            f"rank {here.rank} of {here.size} processes cannot reach the others: {reason}", hint="start all of them"
        ) from error
    try:
        group = TorchGroup(here, timedelta(seconds=timeout))
        yield group
        group.wait()
    finally:  # without it a process that ends by an error may abort in a thread of gloo
        dist.destroy_process_group()


def _end_with_launcher() -> None:
    """On Linux, SIGTERM when the launcher dies: without a launcher a process would train on, unseen."""
    if sys.platform == "linux":
        parent = int(os.environ.get(LAUNCHER, os.getppid()))
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:  # it died before
            signal.raise_signal(signal.SIGTERM)

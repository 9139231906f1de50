"""Join the group of processes that a launcher has started: `minitf ... --nproc P`, torchrun, or a batch system."""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from mini_tf.distributed.group import ProcessGroup
from mini_tf.distributed.torch_group import TorchGroup
from mini_tf.system.errors import Unavailable
from mini_tf.system.processes import JOINED, LAUNCHER, RENDEZVOUS, Place, place

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
    limit = timedelta(seconds=timeout)
    try:
        store, _, _ = next(rendezvous("env://" if file is None else f"file://{file}", here.rank, here.size, timeout=limit))
        meet(store, here, limit)
        backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
        dist.init_process_group(backend, store=store, rank=here.rank, world_size=here.size, timeout=limit)
    except (RuntimeError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), "")[:200]
        raise Unavailable(
            f"rank {here.rank} of {here.size} processes cannot reach the others: {reason}", hint="start all of them"
        ) from error
    try:
        group = TorchGroup(here, limit)
        if file is not None and group.leads:
            Path(file + JOINED).touch()
        yield group
        group.wait()
    finally:  # without it a process that ends by an error may abort in a thread of gloo
        dist.destroy_process_group()


def meet(store: Store, here: Place, limit: timedelta) -> None:
    """Wait for the other processes in a store that all can read; Unavailable, with their ranks, if some do not come."""
    keys = [f"minitf/rank-{rank}" for rank in range(here.size)]
    store.set(keys[here.rank], "here")
    try:
        store.wait(keys, limit)
    except RuntimeError as error:
        missing = [rank for rank, key in enumerate(keys) if not store.check([key])]
        if not missing:
            raise
        listed = ", ".join(map(str, missing[:8])) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        which = f"rank{'s' * (len(missing) > 1)} {listed} of {here.size} processes did not come"
        raise Unavailable(f"{which} within {limit.total_seconds():g} seconds (runtime.timeout)", hint="start all of them") from error


def _end_with_launcher() -> None:
    """On Linux, SIGTERM when the launcher dies: without a launcher a process would train on, unseen."""
    if sys.platform == "linux":
        parent = int(os.environ.get(LAUNCHER, os.getppid()))
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:  # it died before
            signal.raise_signal(signal.SIGTERM)

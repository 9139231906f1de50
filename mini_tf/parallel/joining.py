"""Join the group of processes that a launcher has started: `minitf ... --nproc P`, torchrun, or a batch system."""

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.torch_group import TorchGroup
from mini_tf.system.errors import Unavailable
from mini_tf.system.processes import JOINED, RENDEZVOUS, Place, place


@contextmanager
def joined(timeout: float, on_gpu: bool = False) -> Iterator[ProcessGroup]:
    """The group of this process, which a launcher has started.

    timeout: seconds to wait for another process. on_gpu: gradients are on a GPU. Raises Unavailable where the others
    cannot be reached.
    """
    here = place()
    file = os.environ.get(RENDEZVOUS)
    if file is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    limit = timedelta(seconds=timeout)
    try:
        if file is None:
            _reach_store(here, timeout)
        store, _, _ = next(
            rendezvous("env://" if file is None else f"file://{file}", here.rank, here.size, timeout=limit)
        )
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
        raise Unavailable(
            f"{which} within {limit.total_seconds():g} seconds (runtime.timeout)", hint="start all of them"
        ) from error


def _reach_store(here: Place, timeout: float) -> None:
    """Wait until the store of rank 0 accepts connections; Unavailable if it does not. torch may wait longer."""
    of_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if (
        here.rank == 0 or of_launcher or not {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
    ):  # torch names what is not set
        return
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    until = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection(address, timeout=max(0.1, until - time.monotonic())).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                fault = f"rank 0 of {here.size} processes did not come within {timeout:g} seconds (runtime.timeout)"
                raise Unavailable(
                    fault, hint=f"start all of them ({address[0]}:{address[1]}: {error.strerror or error})"
                ) from error
        time.sleep(0.1)

"""A group of several processes by torch.distributed: gloo for the CPU and for small messages, NCCL between GPUs.

`joined` joins the group of the processes that a launcher has started: `minitf ... --nproc P`, torchrun, or a batch
system.
"""

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from mini_tf.parallel.group import ProcessGroup
from mini_tf.system.errors import ProcessLost, Unavailable
from mini_tf.system.processes import JOINED, RENDEZVOUS, ProcessRank, process_rank, store_fault, store_is_torchruns
from mini_tf.system.safe_text import safe_text

CONTINUE = "the same command continues from the last checkpoint"
MESSAGE = 4096
"""Bytes of a `gather` that needs one collective only."""
DIAGNOSIS = timedelta(seconds=5)
"""How long processes that do not answer are looked for after a timeout."""


_OF_GLOO = re.compile("gloo|imed out|[Cc]onnection")
"""What its errors contain, which have no class of their own."""
_ABOUT_GLOO = re.compile(r"^\[\S+\.cc:\d+\] |\. This is typically caused.*$")
"""What they say of its own code, and in general."""


class TorchGroup(ProcessGroup):
    """timeout: longest wait for another process in one collective."""

    def __init__(self, process: ProcessRank, timeout: timedelta) -> None:
        super().__init__(process)
        self._timeout = timeout
        with self.communication():  # of their own: a collective that timed out closes the connections of its group
            self._pulse = dist.new_group(backend="gloo", timeout=timeout)
            self._control = dist.new_group(backend="gloo", timeout=timeout)
            self._diagnosis = dist.new_group(backend="gloo", timeout=DIAGNOSIS)
            dist.barrier(group=self._diagnosis)  # connects all pairs now, as it may not be possible later

    def all_gather(self, value: Any) -> list[Any]:
        data = json.dumps(value).encode()
        head = len(data).to_bytes(8, "big") + data[: MESSAGE - 8]
        heads = self._all_gather_bytes(head, MESSAGE, self._control)
        lengths = [int.from_bytes(head[:8], "big") for head in heads]
        rests, longest = [b""] * self.world_size, max(lengths) - (MESSAGE - 8)
        if longest > 0:
            rests = self._all_gather_bytes(data[MESSAGE - 8 :], longest, self._control)
        parts = zip(heads, rests, lengths, strict=True)
        return [json.loads((head[8:] + rest)[:length]) for head, rest, length in parts]

    def _all_gather_bytes(self, data: bytes, length: int, group: dist.ProcessGroup) -> list[bytes]:
        """The bytes of all processes, padded to `length`."""
        sent = torch.frombuffer(bytearray(data.ljust(length, b"\0")), dtype=torch.uint8)
        received = [torch.empty(length, dtype=torch.uint8) for _ in range(self.world_size)]
        with self.communication():
            dist.all_gather(received, sent, group=group)
        return [tensor.numpy().tobytes() for tensor in received]

    def gather(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        real = {name: tensor for name, tensor in tensors.items() if not tensor.is_meta}
        specs = self.all_gather([(name, f"{t.dtype}".removeprefix("torch."), [*t.shape]) for name, t in real.items()])
        collected, known = dict(tensors) if self.is_rank_0 else {}, {name for name, _, _ in specs[0]}
        for source in range(1, self.world_size):
            for name, dtype, shape in specs[source]:
                if name in known:
                    continue
                known.add(name)
                with self.communication():
                    if self.is_rank_0:
                        collected[name] = torch.empty(shape, dtype=getattr(torch, dtype))
                        dist.recv(_bytes(collected[name]), source, group=self._control)
                    elif self.rank == source:
                        dist.send(_bytes(real[name].detach().cpu().contiguous()), 0, group=self._control)
        return collected

    @contextmanager
    def independently(self) -> Iterator[None]:
        with heartbeat(self._tell, min(1.0, self._timeout.total_seconds() / 4)):
            yield

    def _tell(self, state: int) -> int:
        """The largest state of all processes; may be called while another thread works."""
        return max(map(ord, self._all_gather_bytes(bytes([state]), 1, self._pulse)))

    def all_reduce(self, tensor: Tensor) -> None:
        with self.communication():
            dist.all_reduce(tensor)

    def send_recv(self, tensor: Tensor, partner: int) -> Tensor:
        received = torch.empty_like(tensor)
        operations = [dist.P2POp(dist.isend, tensor, partner), dist.P2POp(dist.irecv, received, partner)]
        with self.communication():
            for work in dist.batch_isend_irecv(operations):
                work.wait()
        return received

    def broadcast(self, tensor: Tensor, source: int = 0) -> None:
        with self.communication():
            dist.broadcast(tensor, source)

    @contextmanager
    def communication(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if not isinstance(error, dist.DistError) and not _OF_GLOO.search(str(error)):
                raise
            reason = _ABOUT_GLOO.sub("", next(iter(str(error).splitlines()), ""))
            if "imed out" in reason:
                waited = f"{self._timeout.total_seconds():g} seconds (runtime.timeout)"
                raise ProcessLost(f"{self._silent()} did not answer for {waited}", hint=CONTINUE) from error
            fault = f"another process of the run ended: {safe_text(reason)[:200]}"
            raise ProcessLost(fault, hint=CONTINUE) from error

    def _silent(self) -> str:
        """The processes that do not answer, in words; the others must call it, too."""
        try:
            dist.monitored_barrier(group=self._diagnosis, timeout=DIAGNOSIS, wait_all_ranks=True)
        except RuntimeError as error:
            if named := re.search(r"Ranks? ([\d, ]+) failed", str(error)):  # on rank 0 only
                return f"rank {named[1].strip()}"
            return "another process" if self.is_rank_0 else "rank 0"
        return "another process"


def _bytes(tensor: Tensor) -> Tensor:
    """A contiguous tensor as bytes, which every backend sends; not a copy."""
    flat = tensor.as_strided((tensor.numel(),), (1,))  # of a single number, view(-1) may have another stride
    return flat.view(torch.uint8)


DONE, WORKING, FAILED = range(3)


@contextmanager
def heartbeat(tell: Callable[[int], int], interval: float) -> Iterator[None]:
    """Within it other processes know that this one works; its end waits until none does.

    tell: tells all processes what this one does, DONE, WORKING or FAILED, and returns the largest of all; collective.
    interval: seconds from one call to the next. An exception ends the waiting of all. Raises ProcessLost, once the
    block is done, if another process failed or did not answer.
    """
    now, over = WORKING, threading.Event()
    lost: list[ProcessLost] = []

    def beat() -> None:
        try:
            while (state := tell(now)) == WORKING:
                over.wait(interval)
            if state == FAILED:
                lost.append(ProcessLost("another process of the run failed", hint=CONTINUE))
        except ProcessLost as error:
            lost.append(error)

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
        now = DONE
    except BaseException:
        now = FAILED
        raise
    finally:
        over.set()
        thread.join()
    if lost:
        raise lost[0]


@contextmanager
def joined(timeout: float, on_gpu: bool = False) -> Iterator[ProcessGroup]:
    """The group of this process, which a launcher has started; else it is a group of its own.

    timeout: seconds to wait for another process. on_gpu: gradients are on a GPU. Raises Unavailable where the others
    cannot be reached.
    """
    here = process_rank()
    if here.world_size == 1:
        yield ProcessGroup()
        return
    file = os.environ.get(RENDEZVOUS)
    if file is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    limit = timedelta(seconds=timeout)
    try:
        if file is None:
            _reach_store(here, timeout)
        url = "env://" if file is None else f"file://{file}"
        store, _, _ = next(rendezvous(url, here.rank, here.world_size, timeout=limit))
        meet(store, here, limit)
        backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
        dist.init_process_group(backend, store=store, rank=here.rank, world_size=here.world_size, timeout=limit)
    except (RuntimeError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), "")[:200]
        fault = f"rank {here.rank} of {here.world_size} processes cannot reach the others: {reason}"
        raise Unavailable(fault, hint="start all of them") from error
    try:
        group = TorchGroup(here, limit)
        if file is not None and group.is_rank_0:
            Path(file + JOINED).touch()
        yield group
        group.barrier()
    finally:  # without it a process that ends by an error may abort in a thread of gloo
        dist.destroy_process_group()


def meet(store: Store, here: ProcessRank, limit: timedelta) -> None:
    """Wait for the other processes in a store that all can read; Unavailable, with their ranks, if some do not come."""
    keys = [f"minitf/rank-{rank}" for rank in range(here.world_size)]
    store.set(keys[here.rank], "here")
    try:
        store.wait(keys, limit)
    except RuntimeError as error:
        missing = [rank for rank, key in enumerate(keys) if not store.check([key])]
        if not missing:
            raise
        listed = ", ".join(map(str, missing[:8])) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        which = f"rank{'s' * (len(missing) > 1)} {listed} of {here.world_size} processes did not come"
        fault = f"{which} within {limit.total_seconds():g} seconds (runtime.timeout)"
        raise Unavailable(fault, hint="start all of them") from error


def _reach_store(here: ProcessRank, timeout: float) -> None:
    """Wait until the store of rank 0 accepts connections; Unavailable if it does not. torch may wait longer."""
    if here.rank == 0 or store_is_torchruns():
        return
    until = time.monotonic() + timeout
    while (error := store_fault(max(0.1, until - time.monotonic()))) is not None:
        if time.monotonic() > until:
            fault = f"rank 0 of {here.world_size} processes did not come within {timeout:g} seconds (runtime.timeout)"
            address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
            raise Unavailable(fault, hint=f"start all of them ({address}: {error.strerror or error})") from error
        time.sleep(0.1)

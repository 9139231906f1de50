"""A group of several processes by torch.distributed: gloo for the CPU and for small messages, NCCL between GPUs."""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mini_tf.parallel.group import ProcessGroup
from mini_tf.system.errors import ProcessLost
from mini_tf.system.processes import Place
from mini_tf.system.safe_text import safe_text

MESSAGE = 4096
"""Bytes of a `gather` that needs one collective only."""
DIAGNOSIS = timedelta(seconds=5)
"""How long all processes are asked for a sign of life after a timeout."""


_OF_GLOO = re.compile("gloo|imed out|[Cc]onnection")
"""What its errors contain, which have no class of their own."""
_ABOUT_GLOO = re.compile(r"^\[\S+\.cc:\d+\] |\. This is typically caused.*$")
"""What they say of its own code, and in general."""


class TorchGroup(ProcessGroup):
    """timeout: longest wait for another process in one collective."""

    def __init__(self, place: Place, timeout: timedelta) -> None:
        super().__init__(place)
        self._timeout = timeout
        with (
            self.communication()
        ):  # groups of their own: a collective that timed out closes the connections of its group
            self._pulse = dist.new_group(backend="gloo", timeout=timeout)
            self._control = dist.new_group(backend="gloo", timeout=timeout)
            self._diagnosis = dist.new_group(backend="gloo", timeout=DIAGNOSIS)
            dist.barrier(group=self._diagnosis)  # connects all pairs now, as it may not be possible later

    def gather(self, value: Any) -> list[Any]:
        data = json.dumps(value).encode()
        head = len(data).to_bytes(8, "big") + data[: MESSAGE - 8]
        heads = self._all_gather(head, MESSAGE, self._control)
        lengths = [int.from_bytes(head[:8], "big") for head in heads]
        rest = max(lengths) - (MESSAGE - 8)
        rests = self._all_gather(data[MESSAGE - 8 :], rest, self._control) if rest > 0 else [b""] * self.size
        return [
            json.loads((head[8:] + more)[:length]) for head, more, length in zip(heads, rests, lengths, strict=True)
        ]

    def _all_gather(self, data: bytes, length: int, group: dist.ProcessGroup) -> list[bytes]:
        """The bytes of all processes, padded to `length`."""
        sent = torch.frombuffer(bytearray(data.ljust(length, b"\0")), dtype=torch.uint8)
        received = [torch.empty(length, dtype=torch.uint8) for _ in range(self.size)]
        with self.communication():
            dist.all_gather(received, sent, group=group)
        return [tensor.numpy().tobytes() for tensor in received]

    def collect(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        real = {name: tensor for name, tensor in tensors.items() if not tensor.is_meta}
        specs = self.gather([(name, str(t.dtype).removeprefix("torch."), list(t.shape)) for name, t in real.items()])
        collected, known = dict(tensors) if self.leads else {}, {name for name, _, _ in specs[0]}
        for source in range(1, self.size):
            for name, dtype, shape in specs[source]:
                if name in known:
                    continue
                known.add(name)
                with self.communication():
                    if self.leads:
                        collected[name] = torch.empty(shape, dtype=getattr(torch, dtype))
                        dist.recv(_bytes(collected[name]), source, group=self._control)
                    elif self.rank == source:
                        dist.send(_bytes(real[name].detach().cpu().contiguous()), 0, group=self._control)
        return collected

    @contextmanager
    def independently(self) -> Iterator[None]:
        with beating(self._tell, min(1.0, self._timeout.total_seconds() / 4)):
            yield

    def _tell(self, state: int) -> int:
        """The largest state of all processes; may be called while another thread works."""
        return max(map(ord, self._all_gather(bytes([state]), 1, self._pulse)))

    def add_up(self, tensor: Tensor) -> None:
        with self.communication():
            dist.all_reduce(tensor)

    def swap(self, tensor: Tensor, partner: int) -> Tensor:
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
                raise ProcessLost(
                    f"{self._silent()} did not answer for {self._timeout.total_seconds():g} seconds (runtime.timeout)",
                    hint="the same command continues from the last checkpoint",
                ) from error
            raise ProcessLost(
                f"another process of the run ended: {safe_text(reason)[:200]}",
                hint="the same command continues from the last checkpoint",
            ) from error

    def _silent(self) -> str:
        """The processes that give no sign of life; the others must call it, too."""
        try:
            dist.monitored_barrier(group=self._diagnosis, timeout=DIAGNOSIS, wait_all_ranks=True)
        except RuntimeError as error:
            if named := re.search(r"Ranks? ([\d, ]+) failed", str(error)):  # on rank 0 only
                return f"rank {named[1].strip()}"
            return "another process" if self.leads else "rank 0"
        return "another process"


def _bytes(tensor: Tensor) -> Tensor:
    """A contiguous tensor as bytes, which every backend sends; not a copy."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(
        torch.uint8
    )  # of a single number, view(-1) may have another stride


DONE, WORKING, FAILED = range(3)


@contextmanager
def beating(tell: Callable[[int], int], interval: float) -> Iterator[None]:
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
                lost.append(
                    ProcessLost(
                        "another process of the run failed", hint="the same command continues from the last checkpoint"
                    )
                )
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

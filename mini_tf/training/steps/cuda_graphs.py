"""Capturing what a function launches on a GPU, as a CUDA graph: a replay launches all of it at once."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

import torch

T = TypeVar("T")


class NotCapturable(Exception):
    """A function cannot be captured; the message says why."""


class Recorder(Protocol):
    """Captures functions: `CUDAGraphs`, or what stands for a GPU in a test."""

    def rehearsing(self) -> AbstractContextManager[None]:
        """In this context a wait for the device raises NotCapturable."""

    def record(self, function: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        """The result of `function`, whose tensors have no values yet, and the replay that computes them.

        A replay may overwrite the results of what was recorded later. Raises NotCapturable.
        """


class CUDAGraphs:
    """A `Recorder` for a GPU of NVIDIA. All graphs share their memory, so they must be replayed one after the other."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = None

    @contextmanager
    def rehearsing(self) -> Iterator[None]:
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        except RuntimeError as error:
            if "synchronizing CUDA operation" not in str(error):
                raise
            raise NotCapturable(f"this model or objective waits for the GPU in a step ({_first_line(error)})") from error
        finally:
            torch.cuda.set_sync_debug_mode(before)

    def record(self, function: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        graph = torch.cuda.CUDAGraph()
        try:
            # thread_local: another thread may allocate pinned memory for the next batch meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                result = function()
        except RuntimeError as error:  # of any operation: what it has launched was never run
            _forget_capture(self._device)
            raise NotCapturable(_first_line(error)) from error
        self._pool = graph.pool()
        return result, graph.replay


def _forget_capture(device: torch.device) -> None:
    """Give the GPU's generator a new state: that of an interrupted capture refuses to draw numbers."""
    generator: Any = torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    generator.graphsafe_set_state(torch.Generator(device))


def _first_line(error: RuntimeError) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]

"""Capturing what a function launches on a GPU, as a CUDA graph: a replay launches all of it at once."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
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
        _refuse_waits("error")
        try:
            yield
        except RuntimeError as error:
            if "synchronizing CUDA operation" not in str(error):
                raise
            raise NotCapturable(
                f"this model or objective waits for the GPU in a step ({_first_line(error)})"
            ) from error
        finally:
            _refuse_waits(before)

    def record(self, function: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        graph = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        try:
            # A graph is of the current device; after a failure torch leaves the stream of the capture current.
            # thread_local: another thread may allocate pinned memory for the next batch meanwhile.
            with (
                torch.cuda.device(self._device),
                torch.cuda.stream(torch.cuda.current_stream(self._device)),
                torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
            ):
                result = function()
        except RuntimeError as error:  # of any operation: what it has launched was never run
            self._forget_capture()
            raise NotCapturable(_reason(error)) from error
        return result, graph.replay

    def _forget_capture(self) -> None:
        """Undo what an interrupted capture leaves: its memory, and a generator that refuses to draw numbers."""
        device = torch.cuda.current_device() if self._device.index is None else self._device.index
        with suppress(RuntimeError):  # torch has ended the capture, and only the function failed
            torch._C._cuda_endAllocateToPool(device, self._pool)
            torch._C._cuda_releasePool(device, self._pool)
        generator: Any = torch.cuda.default_generators[device]
        generator.graphsafe_set_state(torch.Generator(self._device))


def _refuse_waits(mode: int | str) -> None:
    """torch's sync debug mode, without its warning that it misses some waits: the capture refuses those."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode(mode)


def _reason(error: RuntimeError) -> str:
    """In one line; of a capture that could not be ended either, the first fault."""
    return _first_line(error.__context__ if isinstance(error.__context__, RuntimeError) else error)


def _first_line(error: RuntimeError) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]

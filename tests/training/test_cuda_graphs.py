"""A capture is of the GPU of the run, and one that fails leaves nothing behind; with stand-ins for torch.cuda."""

import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from commands import TINY
from test_gpu import CAPTURED

from mini_tf.nn.cuda_graphs import CUDAGraphs, NotCapturable
from mini_tf.recipe.reading import read

DEVICE = torch.device("cuda:1")


class Driver:
    """torch.cuda as far as a capture uses it. broken: a fault in a capture has ended it, so that ending it fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broken: bool) -> None:
        self.device, self.stream, self.broken, self.open_pools, self.released = (
            0,
            "default",
            broken,
            list[Any](),
            list[Any](),
        )
        self.renewed: list[int] = []
        generators = [SimpleNamespace(graphsafe_set_state=lambda state, n=n: self.renewed.append(n)) for n in range(2)]
        replaced: dict[str, Any] = {
            "CUDAGraph": type("CUDAGraph", (), {"replay": lambda graph: None}),
            "graph": self.graph,
            "graph_pool_handle": lambda: (0, 7),
            "device": self.on_device,
            "current_stream": lambda device: self.stream,
            "stream": self.on_stream,
            "default_generators": generators,
        }
        for name, value in replaced.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch, "Generator", lambda device: torch.default_generator)
        monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", self.end_allocate, raising=False)
        monkeypatch.setattr(
            torch._C, "_cuda_releasePool", lambda device, pool: self.released.append((device, pool)), raising=False
        )

    @contextmanager
    def graph(self, graph: Any, pool: Any, capture_error_mode: str) -> Iterator[None]:
        """As torch's: where ending the capture raises, its stream stays the current one, and its pool open."""
        before, self.stream = self.stream, "capture"
        self.open_pools.append((self.device, pool))
        failed = True
        try:
            yield
            failed = False
        finally:
            if failed and self.broken:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
            self.open_pools.pop()
            self.stream = before

    @contextmanager
    def on_device(self, device: torch.device) -> Iterator[None]:
        before, self.device = self.device, device.index
        try:
            yield
        finally:
            self.device = before

    @contextmanager
    def on_stream(self, stream: str) -> Iterator[None]:
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = before

    def end_allocate(self, device: int, pool: Any) -> None:
        if (device, pool) not in self.open_pools:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.open_pools.remove((device, pool))


def test_a_graph_is_recorded_on_the_device_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, broken=False)
    (device, stream), _ = CUDAGraphs(DEVICE).record(lambda: (driver.device, driver.stream))
    assert (device, stream) == (1, "capture")
    assert (driver.device, driver.stream, driver.open_pools, driver.released) == (0, "default", [], [])


@pytest.mark.parametrize("broken", [False, True])
def test_a_failed_capture_restores_stream_and_memory(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, broken)

    def fails() -> None:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nCompile with ...")

    with pytest.raises(NotCapturable, match=r"^CUDA error: operation not permitted when stream is capturing$"):
        CUDAGraphs(DEVICE).record(fails)
    assert (driver.device, driver.stream, driver.open_pools) == (0, "default", [])
    assert driver.released == ([(1, (0, 7))] if broken else [])
    assert driver.renewed == [1]


@pytest.mark.parametrize("broken", [False, True])
def test_a_failed_capture_frees_what_its_function_made(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, not by the garbage collector: the step is repeated, and needs the memory."""
    Driver(monkeypatch, broken)
    made = list["weakref.ref[torch.Tensor]"]()

    def fails() -> None:
        activations = torch.ones(3)
        made.append(weakref.ref(activations))
        raise RuntimeError("CUDA out of memory")

    with suppress(NotCapturable):
        CUDAGraphs(DEVICE).record(fails)
    assert made[0]() is None


def test_a_rehearsal_prints_no_warning_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int | str] = []

    def set_mode(mode: int | str) -> None:
        warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=1)
        modes.append(mode)

    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    with pytest.raises(NotCapturable, match="waits for the GPU"), CUDAGraphs(DEVICE).rehearsing():
        raise RuntimeError("called a synchronizing CUDA operation")
    assert modes == ["error", 0]


@pytest.mark.parametrize("words", CAPTURED.values(), ids=CAPTURED)
def test_what_is_captured_on_a_gpu_is_a_recipe(words: tuple[str, ...]) -> None:
    """The runs of test_gpu.py start only where there is a GPU."""
    read(str(TINY), [*words])

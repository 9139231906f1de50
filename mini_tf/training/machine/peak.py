"""Peak floating-point operations per second of this machine: a product of large square matrices, measured now."""

import time

import torch


def peak_flops(device: torch.device, dtype: torch.dtype, seconds: float = 0.5) -> float:
    """The best of several matrix sizes, each timed for its part of `seconds`, at least once, with torch's current
    threads.
    """
    sides = (512, 1024, 2048) if device.type == "cpu" else (4096, 8192)
    return max(_best_of(n, device, dtype, seconds / len(sides)) for n in sides)


def _best_of(n: int, device: torch.device, dtype: torch.dtype, seconds: float) -> float:
    drawn = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, n, generator=drawn).to(device, dtype) for _ in range(2))
    product = a @ b  # the first call warms up; the others need no new memory
    best, until = 0.0, time.perf_counter() + seconds
    while not best or time.perf_counter() < until:
        _wait_for(device)
        began = time.perf_counter()
        torch.mm(a, b, out=product)
        _wait_for(device)
        best = max(best, 2 * n**3 / (time.perf_counter() - began))
    return best


def _wait_for(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)

"""Peak FLOP/s of this machine, measured on products of large square matrices."""

import time

import torch


def peak_flops(device: torch.device, dtype: torch.dtype, seconds: float = 0.5) -> float:
    """The best FLOP/s over several sizes, each repeated for its part of `seconds`, with torch's current threads."""
    sizes = (512, 1024, 2048) if device.type == "cpu" else (4096, 8192)
    return max(_best_of(n, device, dtype, seconds / len(sizes)) for n in sizes)


def _best_of(n: int, device: torch.device, dtype: torch.dtype, seconds: float) -> float:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, n, generator=generator).to(device, dtype) for _ in range(2))
    product = a @ b  # warm-up, and the output buffer of the others
    best, until = 0.0, time.perf_counter() + seconds
    while not best or time.perf_counter() < until:
        _synchronize(device)
        start = time.perf_counter()
        torch.mm(a, b, out=product)
        _synchronize(device)
        best = max(best, 2 * n**3 / (time.perf_counter() - start))
    return best


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)

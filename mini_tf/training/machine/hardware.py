"""What this machine is and does: its GPU, its peak FLOP/s, and whether its cores are busy."""

import hashlib
import re
import threading
import time
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from mini_tf.system.errors import reason_of

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
"""Of torch's scaled_dot_product_attention, which chooses among them."""
_GIB = 1 << 30


def describe_gpu(device: torch.device) -> str:
    """Name, memory and compute capability, which decides what a compiler and the kernels can use."""
    properties = torch.cuda.get_device_properties(device)
    free, total = torch.cuda.mem_get_info(device)
    memory = f"{total / _GIB:.1f} GiB, {free / _GIB:.1f} GiB free"
    return f"{properties.name}, {memory}, compute capability {properties.major}.{properties.minor}"


def driver_version(path: Path = Path("/proc/driver/nvidia/version")) -> str:
    """Version of NVIDIA's driver, which Linux tells in a file; "unknown" elsewhere."""
    try:
        match = re.search(r"\b\d{3,}\.\d+(\.\d+)*\b", path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return "unknown"
    return match[0] if match else "unknown"


def failing_attention_kernels(device: torch.device, dtype: torch.dtype) -> dict[str, str]:
    """The KERNELS that do not compute causal attention, forward and backward, on `device`, with the reason."""
    reasons = {name: _failure(backend, device, dtype) for name, backend in KERNELS.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _failure(backend: SDPBackend, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why a kernel fails, in torch's words; None if it works."""
    with warnings.catch_warnings(record=True) as hints, sdpa_kernel(backend):
        warnings.simplefilter("always")
        try:
            q, k, v = (
                torch.linspace(-1, 1, 2 * 64 * 64, device=device).view(1, 2, 64, 64).to(dtype).requires_grad_()
                for _ in range(3)
            )
            F.scaled_dot_product_attention(q, k, v, is_causal=True).float().square().sum().backward()
            finite = all(x.grad is not None and bool(x.grad.isfinite().all()) for x in (q, k, v))
        except (RuntimeError, AssertionError) as error:  # of a kernel; of a torch without CUDA
            said = [str(hint.message).split("(Triggered")[0].strip() for hint in hints]
            # Each kernel that is not used has a heading, and those that are switched off here a line that says so.
            return next(
                (line for line in said if line and "because" not in line and "runtime disabled" not in line),
                reason_of(error),
            )
    return None if finite else "its gradients are not finite"


def peak_flops(device: torch.device, dtype: torch.dtype, seconds: float = 0.5) -> float:
    """The best FLOP/s over several sizes, each repeated for its part of `seconds`, with torch's current threads."""
    sizes = (512, 1024, 2048) if device.type == "cpu" else (4096, 8192)
    return max(_best_of(n, device, dtype, seconds / len(sizes)) for n in sizes)


def bf16_gain(seconds: float = 0.01) -> float:
    """How many times as fast matrix products of a CPU are in bf16 as in fp32, with torch's current threads.

    Measured: 2 to 4 with AMX, a fifth with AVX-512 alone, a hundredth with less, which small products suffice to see.
    Takes up to a tenth of a second.
    """
    small = _gain(128, seconds / 2)
    return small if small < 0.3 else _gain(512, seconds)


def _gain(n: int, seconds: float) -> float:
    """`bf16_gain` of square matrices, each type measured twice for `seconds`, in turn."""
    fp32 = bf16 = 0.0
    for _ in range(2):
        fp32 = max(fp32, _best_of(n, torch.device("cpu"), torch.float32, seconds))
        bf16 = max(bf16, _best_of(n, torch.device("cpu"), torch.bfloat16, seconds))
    return bf16 / fp32


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


MIN_SHARE = 0.8
"""Minimum CPU share of each thread on an idle machine; measured: 0.83 to 1 alone, 0.5 beside one other program."""
SAMPLES = 3
"""Consecutive samples that must all find contention: system processes cause one in sixty on an idle machine."""
_BLOCK = bytes(1 << 20)


def contended(threads: int, seconds: float = 0.1) -> bool:
    """Whether `threads` busy threads get clearly less than a core each, in each of SAMPLES samples of `seconds`."""
    return all(_least_share(threads, seconds) < MIN_SHARE for _ in range(SAMPLES))


def _least_share(threads: int, seconds: float) -> float:
    """CPU time of the slowest thread, as a share of the time."""
    shares = [0.0] * threads
    barrier = threading.Barrier(threads)

    def work(number: int) -> None:
        barrier.wait()
        start, cpu_start = time.perf_counter(), time.thread_time()
        while time.perf_counter() - start < seconds:
            hashlib.sha256(_BLOCK).digest()  # releases the GIL
        shares[number] = (time.thread_time() - cpu_start) / (time.perf_counter() - start)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return min(shares)

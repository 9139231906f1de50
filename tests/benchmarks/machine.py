"""What the machine is, and the peak that MFU is told against: the fastest large fp32 product, measured in the same
run.
"""

import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from .contest import Contest, Side, answer, device, module, threads

PRODUCTS = [(4096, 384, 1536), (1536, 512, 512), (2048, 2048, 2048)]
"""(m, k, n), the sizes of training."""
PRODUCTS_OF_A_GPU = [(16384, 768, 3072), (8192, 8192, 8192)]
PEAK = Contest("peak", "GFLOP/s (fp32; on a GPU bf16)", [Side("torch matrix product", module("machine"))])


def measure() -> dict[str, Any]:
    """GFLOP/s of the fastest product, by medians; and whether there is a GPU."""
    import torch

    torch.set_num_threads(threads())
    rates, on_gpu = [], device() != "cpu"
    kind = {"device": device(), "dtype": torch.bfloat16 if on_gpu else torch.float32}
    for m, k, n in PRODUCTS_OF_A_GPU if on_gpu else PRODUCTS:
        a, b, into = torch.randn(m, k, **kind), torch.randn(k, n, **kind), torch.empty(m, n, **kind)  # type: ignore[arg-type]
        taken = []
        for _ in range(20):
            began = time.perf_counter()
            torch.mm(a, b, out=into)
            if on_gpu:
                torch.cuda.synchronize()
            taken.append(time.perf_counter() - began)
        rates.append(2 * m * k * n / statistics.median(taken[5:]) / 1e9)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return {"value": max(rates), "gpu": gpu}


def name() -> str:
    """The CPU, as the system calls it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor() or "unknown CPU",
    )


if __name__ == "__main__":
    answer(measure, sys.argv[1:])

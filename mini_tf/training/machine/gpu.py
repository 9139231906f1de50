"""What a GPU of NVIDIA is, and which kernels of attention work on it, found by trying them."""

import re
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
        found = re.search(r"\b\d{3,}\.\d+(\.\d+)*\b", path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return "unknown"
    return found[0] if found else "unknown"


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

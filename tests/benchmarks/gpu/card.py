"""The machine: its GPU, memory, driver and versions, and the fastest matrix product in bf16 (of a CPU, fp32).

python -m tests.benchmarks.gpu.card
"""

import platform
import shutil
import subprocess

from .. import machine
from ..contest import device
from .reports import tell


def measure() -> None:
    import torch

    figures = {"value": machine.measure()["value"] * 1e9, "python": platform.python_version(), "cpu": machine.name()}
    if device() != "cpu":
        about = torch.cuda.get_device_properties(0)
        figures |= {"gpu": about.name, "memory_mib": about.total_memory // 2**20, "cuda": torch.version.cuda}
    tell("card", **figures)


def asked(*names: str) -> dict[str, str]:
    """What NVIDIA's tool says of the first GPU; nothing where there is no such tool."""
    if (tool := shutil.which("nvidia-smi")) is None:
        return {}
    done = subprocess.run(
        [tool, f"--query-gpu={','.join(names)}", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return dict(zip(names, map(str.strip, (done.stdout.splitlines() or [""])[0].split(",")), strict=False))


if __name__ == "__main__":
    measure()

"""The machine: its GPU, memory, driver and versions, and the fastest matrix product in bf16 (of a CPU, fp32).

python -m tests.benchmarks.gpu.card
"""

import platform
import shutil
import subprocess

import torch

from .. import machine
from ..contest import device
from .reports import tell


def measure() -> None:
    figures = {
        "value": machine.measure()["value"] * 1e9,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": machine.name(),
    }
    if device() != "cpu":
        about = torch.cuda.get_device_properties(0)
        figures |= {"gpu": about.name, "memory_mib": about.total_memory // 2**20, "cuda": torch.version.cuda, "driver": driver()}
    tell("card", **figures)


def driver() -> str:
    """The version of NVIDIA's driver, empty where its tool is not there."""
    if (tool := shutil.which("nvidia-smi")) is None:
        return ""
    done = subprocess.run([tool, "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=False)
    return (done.stdout.splitlines() or [""])[0].strip()


if __name__ == "__main__":
    measure()

"""Where and how training computes: what the recipe's `auto` comes to on this machine, each with its reason.

What `auto` found is written down at a run's first start (`Setup.found`) and handed in again by every continuation, so a
run does not change its arithmetic half-way. Nothing falls back silently: what is asked for and missing is refused.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mini_tf.errors import Unavailable
from mini_tf.recipe.sections import Runtime

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_AGAIN = "as at the first start"


@dataclass(frozen=True)
class Setup:
    """device, precision (of the forward pass; parameters stay as they are) and compile as concrete words; threads on CPU.

    reasons: device, precision, compile and threads, each with why it is so, for people.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: str = "fp32"
    compile: bool = False
    threads: int = 1
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def found(self) -> dict[str, Any]:
        """What run.json keeps and `settle` takes back."""
        return {"device": str(self.device), "precision": self.precision, "compile": self.compile, "threads": self.threads}

    def apply(self) -> None:
        """Let torch use so many threads, from now on, in the whole process."""
        torch.set_num_threads(self.threads)

    def autocast(self) -> AbstractContextManager[Any]:
        """Within it a forward pass runs in the precision."""
        return nullcontext() if self.precision == "fp32" else torch.autocast(self.device.type, _TYPES[self.precision])

    def compiled(self, task: nn.Module) -> Callable[..., Any]:
        """A function over `task`, compiled where that was asked for; the module itself stays as it is."""
        return torch.compile(lambda *given: task(*given)) if self.compile else task


def settle(runtime: Runtime, found: Mapping[str, Any] | None = None) -> Setup:
    """What the recipe's runtime section comes to here; `found` is what an earlier start of the same run settled on.

    Raises Unavailable where a device or precision is asked for that this machine does not have.
    """
    before = found or {}
    reasons: dict[str, str] = {}

    def choose(key: str, auto: Callable[[], tuple[Any, str]]) -> Any:
        asked = getattr(runtime, key)
        if asked != "auto":
            value, reasons[key] = asked, "asked for"
        elif key in before:
            value, reasons[key] = before[key], _AGAIN
        else:
            value, reasons[key] = auto()
        return value

    device = _open(choose("device", _best_device))
    precision = _check_precision(choose("precision", lambda: _best_precision(device)), device)
    compiled = choose("compile", lambda: _whether_to_compile(device))
    threads = choose("threads", _best_threads)
    if reasons["threads"] == _AGAIN and threads > (cores := available_cores()):
        reasons["threads"] = f"only {cores} cores here, {threads} at the first start: the last bits of the results may differ"
        threads = cores
    return Setup(device, precision, compiled, threads, reasons)


def available_devices() -> list[str]:
    """The devices that `runtime.device` can name on this machine."""
    names = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    return [*names, "mps"] if torch.backends.mps.is_available() else names


def available_precisions(device: torch.device) -> list[str]:
    """The precisions that can be trained in on `device`."""
    if device.type == "cuda":
        return ["fp32", "bf16", "fp16"] if torch.cuda.is_bf16_supported(including_emulation=False) else ["fp32", "fp16"]
    return ["fp32", "bf16"] if device.type == "cpu" else ["fp32", "fp16"]


def available_cores() -> int:
    """Cores that this process may use at the same time: by its affinity, and by the share its container is given."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _container_cores(Path("/sys/fs/cgroup"))))


def _container_cores(cgroup: Path) -> int:
    """Whole cores that the control group is given, as seen from inside a container; a large number where it is not limited."""
    try:
        if (second := cgroup / "cpu.max").exists():
            quota, period = second.read_text().split()
        else:
            quota, period = ((cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return max(1, int(quota) // int(period)) if int(quota) > 0 else 1 << 20
    except (OSError, ValueError):  # no such file, or the word "max"
        return 1 << 20


def _open(name: str) -> torch.device:
    there = available_devices()
    if (name if name != "cuda" else "cuda:0") not in there:
        raise Unavailable(f"runtime.device: there is no {name!r} here; there is {', '.join(there)}", hint="runtime.device=auto")
    return torch.device(name)


def _best_device() -> tuple[str, str]:
    there = available_devices()
    for name in ("cuda:0", "mps"):
        if name in there:
            return name, "an accelerator is there"
    return "cpu", "no accelerator is there"


def _best_precision(device: torch.device) -> tuple[str, str]:
    if device.type == "cuda" and "bf16" in available_precisions(device):
        return "bf16", "this GPU computes it natively"
    if device.type == "cpu":
        return "fp32", "without special units bf16 is several times slower on a CPU"
    return "fp32", "bf16 is not native to this device"


def _check_precision(precision: str, device: torch.device) -> str:
    if precision not in (there := available_precisions(device)):
        raise Unavailable(
            f"runtime.precision: {device} cannot train in {precision}; it can in {', '.join(there)}", hint="runtime.precision=auto"
        )
    return precision


def _whether_to_compile(device: torch.device) -> tuple[bool, str]:
    if device.type == "cuda":
        return True, "faster on a GPU, after half a minute at the start"
    return False, "compiling takes half a minute and gains little here; worth a try on long runs"


def _best_threads() -> tuple[int, str]:
    cores = available_cores()
    default = torch.get_num_threads()  # physical cores of the machine, or OMP_NUM_THREADS
    if default < cores:
        return default, f"torch's default; {cores} logical cores may be used"
    return cores, f"{cores} cores may be used"

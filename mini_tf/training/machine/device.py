"""The setup of a run: settings given in the recipe, those chosen at the run's first start, else safe values.

What `auto` chose is recorded at a run's first start (`Setup.record`) and reused by every continuation, so the
arithmetic of a run does not change. Settings that only a measurement can decide are `undecided` here; tuning.py decides
them. There is no silent fallback: a missing device or precision is refused.
"""

import ctypes
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._triton import has_triton

from mini_tf.recipe.sections import Runtime
from mini_tf.system.errors import Unavailable

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_AGAIN = "as at the first start"
_ASKED = "asked for"


@dataclass(frozen=True)
class Setup:
    """device, precision (of the forward pass; parameters are unaffected), compile, and CPU threads.

    micro_batch_size: rows per forward pass in training, 0 without training. reasons: why each setting has its value.
    undecided: settings with a safe value that a measurement may improve. measured: seconds per step by setting and
    value. provisional: the measurements are not to be remembered for later runs.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: str = "fp32"
    compile: bool = False
    threads: int = 1
    micro_batch_size: int = 0
    reasons: dict[str, str] = field(default_factory=dict)
    undecided: frozenset[str] = frozenset()
    measured: dict[str, dict[str, float]] = field(default_factory=dict)
    provisional: bool = False

    @property
    def found(self) -> dict[str, Any]:
        """The settings that decide the arithmetic: input of `settle`, compared by continuations."""
        rows = {"micro_batch_size": self.micro_batch_size} if self.micro_batch_size else {}
        return {"device": str(self.device), "precision": self.precision, "compile": self.compile, "threads": self.threads, **rows}

    @property
    def record(self) -> dict[str, Any]:
        """What run.json stores."""
        return {**self.found, "measured": self.measured} if self.measured else self.found

    def decided(self, key: str, value: Any, reason: str) -> "Setup":
        """The setup with one setting decided."""
        return replace(self, **{key: value}, reasons={**self.reasons, key: reason}, undecided=self.undecided - {key})

    def describe(self) -> str:
        """All settings in one line; neighbors with the same reason share it."""
        words = {
            "device": f"device {self.device}",
            "precision": self.precision,
            "compile": f"compile {'on' if self.compile else 'off'}",
            "threads": f"{self.threads} thread{'s' if self.threads > 1 else ''}",
            "micro_batch_size": f"{self.micro_batch_size} row{'s' if self.micro_batch_size > 1 else ''} per micro-batch",
        }
        groups = groupby((key for key in words if key in self.reasons), key=self.reasons.__getitem__)
        return ", ".join(f"{', '.join(words[key] for key in keys)} ({reason})" for reason, keys in groups)

    def apply(self) -> None:
        """Apply threads and memory settings to the whole process."""
        torch.set_num_threads(self.threads)
        _keep_freed_memory()

    @property
    def products(self) -> torch.dtype:
        """The type of matrix products."""
        return _TYPES[self.precision]

    def autocast(self) -> AbstractContextManager[Any]:
        """Within it forward passes use the precision."""
        return nullcontext() if self.precision == "fp32" else torch.autocast(self.device.type, _TYPES[self.precision])

    def compiled(self, task: nn.Module) -> Callable[..., Any]:
        """A function over `task`, compiled if requested; the module itself is unchanged."""
        return torch.compile(lambda *given: task(*given)) if self.compile else task


def _keep_freed_memory() -> None:
    """Ask glibc to keep freed large blocks, since every step frees and allocates the same ones.

    Measured on 2 cores: a step of 64 ms had 4,300 page faults, a seventh of its time; with this 58.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    # Older ones refuse more than 32 MiB; one option without the other would make things worse.
    if set_option is not None and (set_option(_MMAP_THRESHOLD, 2**30) or set_option(_MMAP_THRESHOLD, 2**25)):
        set_option(_TRIM_THRESHOLD, 2**31 - 1)


def settle(runtime: Runtime, found: Mapping[str, Any] | None = None, device_key: str = "runtime.device") -> Setup:
    """The setup of a recipe's runtime section on this machine; found: the setup of an earlier start of the same run.

    device_key: the key or option that names the device. Raises Unavailable for a device or precision that is missing.
    """
    before = found or {}
    reasons: dict[str, str] = {}

    def choose(key: str, auto: Callable[[], tuple[Any, str]]) -> Any:
        asked = getattr(runtime, key)
        if asked != "auto":
            value, reasons[key] = asked, _ASKED
        elif key in before:
            value, reasons[key] = before[key], _AGAIN
        else:
            value, reasons[key] = auto()
        return value

    device = _open(choose("device", _best_device), device_key)
    precision = _check_precision(choose("precision", lambda: _safe_precision(device)), device)
    compiled = choose("compile", lambda: (False, "not measured"))
    if compiled and (missing := missing_compiler(device)):
        if reasons["compile"] == _ASKED:
            raise Unavailable(f"runtime.compile: {missing}", hint="runtime.compile=auto")
        compiled, reasons["compile"] = False, f"{missing}, unlike at the first start: results may differ in the last bits"
    threads = choose("threads", _most_threads)
    if reasons["threads"] == _AGAIN and threads > (cores := available_cores()):
        reasons["threads"] = f"only {cores} cores, {threads} at the first start: results may differ in the last bits"
        threads = cores
    rows = before.get("micro_batch_size", 0)
    undecided = frozenset() if before else _worth_trying(device, threads) - {key for key in reasons if reasons[key] == _ASKED}
    return Setup(device, precision, compiled, threads, rows, reasons | ({"micro_batch_size": _AGAIN} if rows else {}), undecided)


def missing_compiler(device: torch.device) -> str | None:
    """What torch.compile lacks on this machine; None if nothing."""
    if device.type == "cuda":
        if not has_triton():
            return "no Triton for this GPU"
        named, usual = os.environ.get("CC"), ["gcc", "clang"]
    else:
        named, usual = os.environ.get("CXX"), ["clang++" if sys.platform == "darwin" else "g++"]
    programs = shlex.split(named)[:1] if named else usual
    return None if any(map(shutil.which, programs)) else f"no compiler {' or '.join(programs)}"


def available_devices() -> list[str]:
    """Devices for `runtime.device` on this machine."""
    names = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    return [*names, "mps"] if torch.backends.mps.is_available() else names


def available_precisions(device: torch.device) -> list[str]:
    """Precisions for training on `device`."""
    if device.type == "cuda":
        return ["fp32", "bf16", "fp16"] if torch.cuda.is_bf16_supported(including_emulation=False) else ["fp32", "fp16"]
    return ["fp32", "bf16"] if device.type == "cpu" else ["fp32", "fp16"]


def available_cores() -> int:
    """Cores that this process may use: by affinity and by the limit of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _container_cores(Path("/sys/fs/cgroup"))))


def _container_cores(cgroup: Path) -> int:
    """Whole cores of the control group, seen from inside a container; a large number without a limit."""
    try:
        if (second := cgroup / "cpu.max").exists():
            quota, period = second.read_text().split()
        else:
            quota, period = ((cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return max(1, int(quota) // int(period)) if int(quota) > 0 else 1 << 20
    except (OSError, ValueError):  # no such file, or the word "max"
        return 1 << 20


def _open(name: str, key: str) -> torch.device:
    there = available_devices()
    if (name if name != "cuda" else "cuda:0") not in there:
        raise Unavailable(f"{key}: no {name!r} on this machine; available: {', '.join(there)}", hint=f"{key}=auto")
    return torch.device(name)


def _best_device() -> tuple[str, str]:
    accelerators = [name for name in ("cuda:0", "mps") if name in available_devices()]
    return (accelerators[0], "accelerator available") if accelerators else ("cpu", "no accelerator available")


def _safe_precision(device: torch.device) -> tuple[str, str]:
    if device.type == "cuda" and "bf16" in available_precisions(device):
        return "bf16", "this GPU computes it natively"
    if device.type == "cpu":
        return "fp32", "not measured"
    return "fp32", "bf16 is not native to this device"


def _check_precision(precision: str, device: torch.device) -> str:
    if precision not in (there := available_precisions(device)):
        raise Unavailable(
            f"runtime.precision: {device} does not support {precision}; supported: {', '.join(there)}", hint="runtime.precision=auto"
        )
    return precision


def _most_threads() -> tuple[int, str]:
    cores = available_cores()
    default = torch.get_num_threads()  # physical cores of the machine, or OMP_NUM_THREADS
    if default < cores:
        return default, f"torch's default; {cores} logical cores available"
    return cores, f"{cores} core{'s' if cores > 1 else ''} available"


def _worth_trying(device: torch.device, threads: int) -> frozenset[str]:
    """Settings that only timing can decide: whether a CPU has bf16 units, what a thread costs."""
    if device.type == "cpu":
        return frozenset({"precision", "compile", "micro_batch_size"} | ({"threads"} if threads > 1 else set()))
    return frozenset({"compile"} if device.type == "cuda" else set())

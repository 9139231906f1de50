"""Device, precision, compilation and threads: from the recipe, else from run.json, else a safe default.

The values chosen for `auto` are recorded at the first start of a run (`Setup.record`) and reused by every resume, so a
run never changes its arithmetic. Settings that need timing are `undecided` here; tuning.py decides them. There is no
silent fallback: a setting of the recipe that the machine does not support is refused.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._triton import has_triton

from mini_tf.recipe.sections import Runtime
from mini_tf.system.collector import resume_collection
from mini_tf.system.errors import Unavailable
from mini_tf.system.numbers import counted
from mini_tf.system.processes import ProcessRank, process_rank
from mini_tf.training.feed import Feed
from mini_tf.training.machine.compiled import compiled_task
from mini_tf.training.machine.malloc import keep_freed_memory

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_DETERMINISTIC_CUBLAS = (":4096:8", ":16:8")
"""Of the documentation of cuBLAS, Results reproducibility."""
RECORDED, EXPLICIT = "recorded in run.json", "set in the recipe"
"""Reasons of settings that were not chosen here."""
CHANGED = ", unlike at the first start: results may differ in the last bits"


@dataclass(frozen=True)
class Setup:
    """Concrete settings of device and arithmetic.

    precision: dtype of the forward pass (autocast); parameters stay fp32. threads: intra-op threads of the CPU.
    micro_batch_size: rows of a micro-batch in training; 0 outside training. reasons: why each setting has its value.
    undecided: settings that have a safe default and may be tuned. measured: seconds per step by setting and value.
    provisional: the tuning was too incomplete to be cached for later runs. graphs: steps are captured in CUDA graphs.
    fallbacks: why a setting was given up after it was chosen.
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
    graphs: bool = False
    fallbacks: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that decide the arithmetic: an argument of `resolve_setup`, compared when a run is resumed."""
        rows = {"micro_batch_size": self.micro_batch_size} if self.micro_batch_size else {}
        graphs = {"graphs": self.graphs} if self.device.type == "cuda" else {}
        decided = {"precision": self.precision, "compile": self.compile, "threads": self.threads}
        return {"device": str(self.device), **decided, **graphs, **rows}

    @property
    def record(self) -> dict[str, Any]:
        """As recorded in run.json."""
        return {**self.settings, "measured": self.measured} if self.measured else self.settings

    def decided(self, key: str, value: Any, reason: str) -> "Setup":
        """A copy with one setting decided."""
        return replace(self, **{key: value}, reasons={**self.reasons, key: reason}, undecided=self.undecided - {key})

    def without(self, key: str, reason: str) -> "Setup":
        """A copy with a setting given up after it was chosen, which run.json records."""
        return replace(self.decided(key, False, reason), fallbacks=self.fallbacks | {key: reason})

    def describe(self) -> str:
        """All settings with their reasons in one line; neighbours with the same reason share it."""
        words = {
            "device": f"device {self.device}",
            "precision": self.precision,
            "compile": f"compile {'on' if self.compile else 'off'}",
            "graphs": f"CUDA graphs {'on' if self.graphs else 'off'}",
            "threads": counted(self.threads, "thread"),
            "micro_batch_size": f"micro-batch size {self.micro_batch_size}",
        }
        groups = groupby((key for key in words if key in self.reasons), key=self.reasons.__getitem__)
        return ", ".join(f"{', '.join(words[key] for key in keys)} ({reason})" for reason, keys in groups)

    def apply(self) -> None:
        """Set the number of torch's threads and make malloc keep freed memory, for the whole process."""
        torch.set_num_threads(self.threads)
        keep_freed_memory()

    def make_deterministic(self) -> None:
        """Choose GPU kernels that add in a fixed order, for the whole process, so that a resumed run has the same bits.

        Without effect on a CPU, whose kernels do, and where the environment forbids it. Raises RuntimeError later where
        torch has no such kernel, as for the cumulative sum of floats (nn/layers/kernels.py).
        """
        if (
            self.device.type == "cuda"
            and os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8") in _DETERMINISTIC_CUBLAS
        ):
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # it costs time
            torch.use_deterministic_algorithms(True)

    def seed(self, seed: int) -> None:
        """`torch.manual_seed` for the CPU and this device. torch seeds every kind of device, and formats the stack for
        each that is not there, which takes a good part of a small model's step on a GPU.
        """
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            index = torch.cuda.current_device() if self.device.index is None else self.device.index
            torch.cuda.default_generators[index].manual_seed(seed)
        elif self.device.type == "mps":
            torch.mps.manual_seed(seed)

    @property
    def compute_dtype(self) -> torch.dtype:
        """The dtype of matrix products."""
        return _TYPES[self.precision]

    def autocast(self) -> AbstractContextManager[Any]:
        """Context manager for a forward pass in `precision`."""
        return nullcontext() if self.precision == "fp32" else torch.autocast(self.device.type, _TYPES[self.precision])

    def compiled(self, task: nn.Module, feed: Feed | None = None) -> Callable[..., Any]:
        """`task` as a function, compiled for the rows of `feed` if `compile`; the module itself is not changed."""
        return compiled_task(task, feed) if self.compile else task


def resolve_setup(
    runtime: Runtime, recorded: Mapping[str, Any] | None = None, device_key: str = "runtime.device"
) -> Setup:
    """The setup of a recipe's runtime section on this machine. Several processes share its cores, and have a GPU each.

    recorded: `Setup.settings` of the run's first start. device_key: key or option that names the device, for messages.
    Raises Unavailable if this machine does not support a requested setting.
    """
    resume_collection()  # what comes now is work
    before = recorded or {}
    reasons: dict[str, str] = {}

    def choose(key: str, auto: Callable[[], tuple[Any, str]]) -> Any:
        setting = getattr(runtime, key)
        if setting != "auto":
            value, reasons[key] = setting, EXPLICIT
        elif key in before:
            value, reasons[key] = before[key], RECORDED
        else:
            value, reasons[key] = auto()
        return value

    device = _open(choose("device", _best_device), device_key, reasons["device"])
    here = process_rank()
    if here.world_size > 1 and device.type != "cpu":
        device = _own_gpu(here, device_key)
    precision = _check_precision(choose("precision", lambda: _safe_precision(device)), device, reasons["precision"])
    compiled = choose("compile", lambda: (False, "not measured"))
    if compiled and (missing := missing_compiler(device)):
        if reasons["compile"] == EXPLICIT:
            raise Unavailable(f"runtime.compile: {missing}", hint="runtime.compile=auto")
        compiled, reasons["compile"] = False, f"{missing}{CHANGED}"
    threads = choose("threads", partial(_most_threads, here.local_world_size))
    if reasons["threads"] == RECORDED and threads > (cores := available_cores()):
        first = f"{threads} at the first start: results may differ in the last bits"
        threads, reasons["threads"] = cores, f"only {cores} cores now, {first}"
    rows = before.get("micro_batch_size", 0)
    explicit = {key for key, reason in reasons.items() if reason == EXPLICIT}
    undecided = frozenset() if before else _tunable(device, threads) - explicit
    reasons |= {"micro_batch_size": RECORDED} if rows else {}
    return Setup(device, precision, compiled, threads, rows, reasons, undecided)


def on_gpu(runtime: Runtime) -> bool:
    """Whether `resolve_setup` chooses a GPU of NVIDIA."""
    return runtime.device.startswith("cuda") or (runtime.device == "auto" and torch.cuda.is_available())


def missing_compiler(device: torch.device) -> str | None:
    """The reason why torch.compile does not work on this machine; None if it should work."""
    if device.type == "cuda":
        if not has_triton():
            return "Triton does not support this GPU"
        named, default = os.environ.get("CC"), ["gcc", "clang"]
    else:
        named, default = os.environ.get("CXX"), ["clang++" if sys.platform == "darwin" else "g++"]
        if any(map(str.isspace, cache := os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""))):
            return f"torch cannot compile in a folder with a space in its name (TORCHINDUCTOR_CACHE_DIR={cache})"
    programs = shlex.split(named)[:1] if named else default
    return None if any(map(shutil.which, programs)) else f"no compiler {' or '.join(programs)}"


def available_devices() -> list[str]:
    """The devices of this machine, as values of `runtime.device`."""
    names = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    return [*names, "mps"] if torch.backends.mps.is_available() else names


def available_precisions(device: torch.device) -> list[str]:
    """The precisions that `device` supports in training."""
    if device.type == "cuda":
        return ["fp32", "bf16", "fp16"] if torch.cuda.is_bf16_supported(including_emulation=False) else ["fp32", "fp16"]
    return ["fp32", "bf16"] if device.type == "cpu" else ["fp32", "fp16"]


def available_cores() -> int:
    """CPU cores available to this process: the lesser of its affinity and the quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _container_cores(Path("/sys/fs/cgroup"))))


def _container_cores(cgroup: Path) -> int:
    """CPU quota of the control group in whole cores, as seen inside a container; a large number if unlimited."""
    try:
        if (second := cgroup / "cpu.max").exists():
            quota, period = second.read_text().split()
        else:
            quota, period = ((cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return max(1, int(quota) // int(period)) if int(quota) > 0 else 1 << 20
    except (OSError, ValueError):  # no such file, or the word "max"
        return 1 << 20


def _open(name: str, key: str, reason: str) -> torch.device:
    devices = available_devices()
    if (name if name != "cuda" else "cuda:0") not in devices:
        fault = f"{key}: {name!r}{_origin(reason)} is not available on this machine; available: {', '.join(devices)}"
        raise Unavailable(fault, hint=f"use {key}={devices[-1] if reason == RECORDED else 'auto'}")
    return torch.device(name)


def _origin(reason: str) -> str:
    """Of a value that `auto` takes from run.json, for a message: `auto` is then no way out."""
    return f" ({RECORDED})" if reason == RECORDED else ""


def _own_gpu(here: ProcessRank, key: str) -> torch.device:
    """The GPU of this process of several."""
    n_gpus, n_processes = torch.cuda.device_count(), here.local_world_size
    if n_processes > n_gpus:
        fewer = {0: "", 1: "start one process, or "}.get(n_gpus, f"start {n_gpus} processes, or ")
        fault = f"{key}: {n_processes} processes need a GPU each (NVIDIA or AMD), and this machine has {n_gpus}"
        raise Unavailable(fault, hint=f"{fewer}use {key}=cpu")
    return torch.device(f"cuda:{here.local_rank}")


def _best_device() -> tuple[str, str]:
    accelerators = [name for name in ("cuda:0", "mps") if name in available_devices()]
    return (accelerators[0], "accelerator available") if accelerators else ("cpu", "no accelerator available")


def _safe_precision(device: torch.device) -> tuple[str, str]:
    if device.type == "cuda" and "bf16" in available_precisions(device):
        return "bf16", "native on this GPU"
    if device.type == "cpu":
        return "fp32", "not measured"
    return "fp32", "bf16 is not native on this device"


def _check_precision(precision: str, device: torch.device, reason: str) -> str:
    if precision not in (supported := available_precisions(device)):
        fault = f"runtime.precision: {device} does not support {precision}{_origin(reason)}"
        hint = f"runtime.precision={supported[0] if reason == RECORDED else 'auto'}"
        raise Unavailable(f"{fault}; it supports {', '.join(supported)}", hint=hint)
    return precision


def _most_threads(processes: int) -> tuple[int, str]:
    cores = available_cores()
    if processes > 1:  # torch's default may be one thread, as torchrun sets OMP_NUM_THREADS
        return max(1, cores // processes), f"{cores} cores for {processes} processes"
    default = torch.get_num_threads()  # physical cores of the machine, or OMP_NUM_THREADS
    if default < cores:
        return default, f"torch's default; {cores} logical cores available"
    return cores, f"{counted(cores, 'core')} available"


def _tunable(device: torch.device, threads: int) -> frozenset[str]:
    """Settings whose best value must be measured, e.g. whether a CPU has bf16 units."""
    if device.type == "cpu":
        return frozenset({"precision", "compile", "micro_batch_size"} | ({"threads"} if threads > 1 else set()))
    return frozenset({"compile"} if device.type == "cuda" else set())

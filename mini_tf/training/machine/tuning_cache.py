"""Cache of tuning results: one folder per machine and shape of the run in the cache folder `tuning`, with one small
JSON file per length.

A file holds the chosen values and the facts that its folder's name is a hash of. A damaged file, or one with other
facts, is ignored.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from math import log2
from pathlib import Path
from typing import Any

import torch

import mini_tf
from mini_tf.system.cache import cache_folder
from mini_tf.system.errors import StorageFault
from mini_tf.system.processor import processor
from mini_tf.system.safe_files import write_atomically
from mini_tf.system.safe_text import safe_text
from mini_tf.training.machine.device import Setup, available_cores, available_precisions, missing_compiler
from mini_tf.training.machine.tuning import RunLength

FORMAT = 2


def cached_tuning(
    shape: dict[str, Any], length: RunLength, setup: Setup, tune: Callable[[], Setup], log: Callable[[str], None]
) -> Setup:
    """The result of `tune` for this shape and about this length on this machine, cached or new; `log` prints which.

    A precision that was not measured, as the run is short or the machine busy, is that of a run of another length.
    shape: everything else that the time of a step depends on, as JSON.
    """
    start = {"start": setup.settings, "undecided": sorted(setup.undecided)}
    of_any_length = json.loads(json.dumps({**shape, **start, **_machine(setup.device)}))
    facts = of_any_length | _length(length)
    key = hashlib.sha256(json.dumps(of_any_length, sort_keys=True).encode()).hexdigest()[:16]
    try:
        folder = cache_folder() / "tuning" / key
    except StorageFault as fault:
        log(f"tuning: {fault.message}; the result is not cached")
        return tune()
    decided = _cached(folder / f"{facts['steps']}-{facts['seconds']}.json", facts, setup, tune, log)
    if "precision" not in setup.undecided or "precision" in decided.measured:
        return decided
    return _with_known_precision(decided, folder, facts)


def _with_known_precision(decided: Setup, folder: Path, facts: dict[str, Any]) -> Setup:
    """The setup with the precision that was measured for a run of another length, if there was one; which is faster
    does not depend on the length."""
    length = {name: facts[name] for name in ("steps", "seconds")}
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            precision, reason = content["decided"]["precision"]
            measured = "precision" in content["measured"] and {**content["facts"], **length} == facts
            if measured and _is_valid("precision", precision, decided):
                return decided.decided("precision", precision, f"{safe_text(reason)} in a run of another length")
        except (OSError, ValueError, KeyError, TypeError, RecursionError):  # damaged, which its own run will say
            continue
    return decided


def _cached(
    path: Path, facts: dict[str, Any], setup: Setup, tune: Callable[[], Setup], log: Callable[[str], None]
) -> Setup:
    """The result of `tune` in the file, or a new one, which is written there."""
    if path.is_file():
        try:
            cached = _read(path, facts, setup)
            log(f"tuning: reused from an earlier run ({path})")
            return cached
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            log(f"tuning: {path} is damaged ({type(error).__name__}); measuring again")
    tuned = tune()
    if tuned.provisional:
        return tuned
    decided = {name: [getattr(tuned, name), tuned.reasons[name]] for name in sorted(setup.undecided)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"facts": facts, "decided": decided, "measured": tuned.measured}, indent=1))
    except OSError as error:
        log(f"tuning: the result cannot be cached: {error.strerror}")
    return tuned


def _read(path: Path, facts: dict[str, Any], setup: Setup) -> Setup:
    """The setup with the values of a file. Raises several types of errors if the file is damaged."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["facts"] != facts or content["decided"].keys() != setup.undecided:
        raise ValueError("facts of another run")
    for name, (value, reason) in content["decided"].items():
        if not _is_valid(name, value, setup):
            raise ValueError(f"{name} cannot be {value!r}")
        setup = setup.decided(name, value, safe_text(reason))
    measured = {
        str(name): {str(value): float(s) for value, s in seconds.items()}
        for name, seconds in content["measured"].items()
    }
    return replace(setup, measured=measured)


def _is_valid(name: str, value: Any, setup: Setup) -> bool:
    if name == "precision":
        return value in available_precisions(setup.device)
    if name == "compile":
        return isinstance(value, bool)
    most = setup.threads if name == "threads" else setup.micro_batch_size
    return type(value) is int and 1 <= value <= most and (name == "threads" or most % value == 0)


def _length(length: RunLength) -> dict[str, Any]:
    """Rounded to powers of sqrt(2), so that runs of similar length share a result."""
    steps, seconds = length.horizon.steps, length.horizon.seconds
    return {"steps": steps and round(2 * log2(steps)), "seconds": seconds and round(2 * log2(seconds))}


def _machine(device: torch.device) -> dict[str, Any]:
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    software = {"format": FORMAT, "minitf": mini_tf.__version__, "torch": str(torch.__version__)}
    return {
        **software,
        "gpu": gpu,
        "cpu": processor(torch.backends.cpu.get_cpu_capability()),
        "cores": available_cores(),
        "compiler": missing_compiler(device),
    }

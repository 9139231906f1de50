"""What was tuned before, by machine and shape: one small JSON a question, in the folder `tuning` of the cache.

A file holds the facts it was found for and what was decided; one that is damaged, or holds other facts, is as good as none.
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
from mini_tf.system.safe_text import safe_text
from mini_tf.system.temporary_files import write_atomically
from mini_tf.training.machine.device import Setup, available_cores, available_precisions
from mini_tf.training.machine.processor import processor
from mini_tf.training.machine.tuning import RunLength

FORMAT = 1


def remembered(shape: dict[str, Any], work: RunLength, setup: Setup, find: Callable[[], Setup], say: Callable[[str], None]) -> Setup:
    """What `find` decided for this shape and about so much work on a machine like this, now or earlier; `say` is told which.

    shape: all besides `work` and `setup` that the time of a step depends on, as JSON.
    """
    start = {"start": setup.found, "undecided": sorted(setup.undecided)}
    facts = json.loads(json.dumps({**shape, **_length(work), **start, **_machine(setup.device)}))
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    try:
        path = cache_folder() / "tuning" / f"{key}.json"
    except StorageFault as fault:
        say(f"tuning: {fault.message}; nothing is remembered")
        return find()
    if path.is_file():
        try:
            found = _read(path, facts, setup)
            say(f"tuning: known from an earlier run ({path})")
            return found
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            say(f"tuning: {path} is damaged ({type(error).__name__}); measuring anew")
    found = find()
    if found.provisional:
        return found
    decided = {name: [getattr(found, name), found.reasons[name]] for name in sorted(setup.undecided)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"facts": facts, "decided": decided, "measured": found.measured}, indent=1))
    except OSError as error:
        say(f"tuning: cannot be remembered: {error.strerror}")
    return found


def _read(path: Path, facts: dict[str, Any], setup: Setup) -> Setup:
    """Raises what a file can make go wrong."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept["facts"] != facts or kept["decided"].keys() != setup.undecided:
        raise ValueError("found for something else")
    for name, (value, reason) in kept["decided"].items():
        if not _possible(name, value, setup):
            raise ValueError(f"{name} cannot be {value!r}")
        setup = setup.decided(name, value, safe_text(reason))
    measured = {str(name): {str(value): float(s) for value, s in figures.items()} for name, figures in kept["measured"].items()}
    return replace(setup, measured=measured)


def _possible(name: str, value: Any, setup: Setup) -> bool:
    if name == "precision":
        return value in available_precisions(setup.device)
    if name == "compile":
        return isinstance(value, bool)
    most = setup.threads if name == "threads" else setup.micro_batch_size
    return type(value) is int and 1 <= value <= most and (name == "threads" or most % value == 0)


def _length(work: RunLength) -> dict[str, Any]:
    """Runs up to 1.4 times as long as each other count as one."""
    steps, seconds = work.horizon.steps, work.horizon.seconds
    return {"steps": steps and round(2 * log2(steps)), "seconds": seconds and round(2 * log2(seconds))}


def _machine(device: torch.device) -> dict[str, Any]:
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    software = {"format": FORMAT, "minitf": mini_tf.__version__, "torch": str(torch.__version__)}
    return {**software, "gpu": gpu, "cpu": processor(), "cores": available_cores()}

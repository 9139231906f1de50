"""Which folder a training command means, and whether it may have it: new, to be continued, or already complete.

A start that is refused creates nothing and changes nothing: in a folder that stood nothing is written before `begin`.
"""

import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy
import safetensors
import torch

import mini_tf
from mini_tf.optimizers import IMPLEMENTATION
from mini_tf.run import kind_sources, manifest
from mini_tf.run.disk import TEMPORARY, Disk, make_folder, refuse_strange
from mini_tf.run.finding import OUTPUTS, try_to_hold
from mini_tf.run.folder import Run
from mini_tf.run.identity import Identity, differences
from mini_tf.run.manifest import OTHER_HASHES, Manifest, hashes_ids
from mini_tf.system.errors import RunFault, StorageFault, UsageFault
from mini_tf.training.machine.processor import processor

_LONGEST_NAME, _LONGEST_PATH = 240, 3800
"""Bytes; systems take 255 and 4095, and a fresh start adds its number, a checkpoint its files."""


@dataclass(frozen=True)
class RunLocation:
    """Where a run shall live: `directory` is the folder itself, or its parent where a `name` is given."""

    directory: Path | None = None
    name: str | None = None
    fresh: bool = False
    """Start over beside the folder (NAME.2, NAME.3, ...)."""


def open_run(location: RunLocation, identity: Identity, command: Sequence[str] = (), disk: Disk | None = None) -> Run:
    """The run that the command means, held for this process.

    RunFault where the folder belongs to other data, another recipe, somebody else, or another process right now.
    """
    disk = disk or Disk()
    folder = choose_folder(location, identity)
    lock, stood_before = _hold(folder, disk)
    try:
        if set(os.listdir(folder)) <= {TEMPORARY + manifest.NAME}:  # which a start that was killed at once leaves
            refuse_strange(folder)
            run = Run(folder, _record(identity, command), lock, "new", disk)
            begin(run, identity, stood_before)
            return run
        if not (folder / manifest.NAME).exists():
            _refuse(folder, "is not empty and no run folder of minitf", "choose another with -d")
        refuse_strange(folder)
        record = manifest.read(folder)
        _refuse_another_run(folder, record, identity)
        record = record.model_copy(update={"decides": {**record.decides, **identity.decides}})  # keys that it did not know
        return Run(folder, record, lock, "finished" if record.state == "done" else "continued", disk)
    except BaseException:
        os.close(lock)
        raise


def begin(run: Run, identity: Identity, stood_before: bool = True) -> None:
    """The start is accepted: the folder is this process's, with the recipe as it is given now. Nothing where that was said before."""
    if not run.begun:
        run.begin(stood_before)
        run.write("recipe.yaml", identity.text)
        run.write("resolved.yaml", identity.resolved)


def choose_folder(location: RunLocation, identity: Identity) -> Path:
    """The folder by its rules, which need not exist: the newest of NAME, NAME.2, ... that is this run."""
    name = location.name
    if name is not None and (name in ("", ".", "..", "last") or not re.fullmatch(r"[^/\\\x00-\x1f\x7f]+", name)):
        raise UsageFault(f"{name[:80]!r} cannot be the name of a run", hint="use letters, digits, - and _; -d DIR chooses the folder")
    first = folder_of(location) or OUTPUTS.absolute() / identity.default_name
    if max(len(os.fsencode(part)) for part in first.parts) > _LONGEST_NAME or len(os.fsencode(first)) > _LONGEST_PATH:
        raise UsageFault(
            f"{first.name[:80]!r} cannot be the name of a run: it, or its path, is too long", hint="give shorter ones with -n, -d"
        )
    if (
        first.is_symlink()
        or (first.exists() and not first.is_dir())
        or first.resolve() in (Path("/"), Path(os.path.expanduser("~")).resolve())
    ):
        _refuse(first, "cannot be a run folder: it is a file, a link, the root or your home", "choose another with -d")
    later = {number: first.with_name(f"{first.name}.{number}") for number in sorted(_numbers_beside(first), reverse=True)}
    if location.fresh:
        return first.with_name(f"{first.name}.{max([1, *later]) + 1}") if first.exists() or later else first
    return next((folder for folder in later.values() if _is_run(folder, identity)), first)


def folder_of(location: RunLocation) -> Path | None:
    """The folder that a location names, to which a fresh start adds a number; None where the recipe and what it reads make the name."""
    if location.name is not None:
        return (location.directory or OUTPUTS).absolute() / location.name
    return None if location.directory is None else location.directory.absolute()


def _numbers_beside(first: Path) -> list[int]:
    pattern = re.compile(re.escape(first.name) + r"\.([2-9]|[1-9]\d{1,5})")
    names = os.listdir(first.parent) if first.parent.is_dir() else []
    return [int(found[1]) for found in map(pattern.fullmatch, names) if found]


def _is_run(folder: Path, identity: Identity) -> bool:
    # A folder of such a name may be another run altogether: `-n v1.2` is no fresh start of `-n v1`.
    with suppress(RunFault):
        record = manifest.read(folder)
        return record.hashes == identity.hashes and not identity.changes_since(record.run_id, record.decides)
    return False


def _record(identity: Identity, command: Sequence[str]) -> Manifest:
    return Manifest(
        recipe=identity.recipe,
        run_id=identity.run_id,
        decides=dict(identity.decides),
        hashes=dict(identity.hashes),
        seed=identity.seed,
        command=list(command),
        versions=versions(),
        kinds=dict(identity.kinds),
        started=time.time(),
    )


def _hold(folder: Path, disk: Disk) -> tuple[int, bool]:
    """The lock of a folder, which is made where there is none; and whether there was one."""
    stood_before = True
    for _ in range(5):  # `minitf runs list` holds a folder for a moment, to see whether it is held
        stood_before = _make(folder, disk) and stood_before
        with suppress(FileNotFoundError):  # another start was refused, and took its folder away
            lock = try_to_hold(folder)
            if lock is not None and _is_still(folder, lock):
                return lock, stood_before
        time.sleep(0.05)
    holder = manifest.read(folder) if (folder / manifest.NAME).is_file() else Manifest()
    named = f"process {holder.pid} on {holder.host[:80]}" if holder.state == "running" and holder.pid else "another process"
    _refuse(folder, f"is in use by {named}", "wait for it, or start another with --fresh")


def _make(folder: Path, disk: Disk) -> bool:
    """Whether there was one."""
    stood_before = folder.exists()
    try:
        make_folder(disk, folder)
    except OSError as error:
        raise StorageFault(
            f"cannot create {folder}: {error.strerror}", hint="-d DIR puts the run elsewhere", where=[str(folder)]
        ) from error
    return stood_before


def _is_still(folder: Path, lock: int) -> bool:
    """Whether what is held is the folder that has the name now; if not, it is let go."""
    with suppress(FileNotFoundError):
        if os.path.samestat(folder.stat(), os.fstat(lock)):
            return True
    os.close(lock)
    return False


def _refuse_another_run(folder: Path, record: Manifest, identity: Identity) -> None:
    changed = identity.changes_since(record.run_id, record.decides)
    shown = "; ".join(changed[:5]) + (f" (and {len(changed) - 5} more)" if len(changed) > 5 else "")
    if changed and record.run_id == identity.run_id:
        again = f"`minitf pretrain {folder} -d {folder}` continues it as it was; --fresh starts over"
        _refuse(folder, f"was started when the recipe's defaults were others: {shown}", again)
    if changed:
        _refuse(folder, f"belongs to another recipe: {shown}", "choose another name with -n, or start over with --fresh")
    if not hashes_ids(record):
        _refuse(folder, OTHER_HASHES, "choose another name with -n, or start over with --fresh")
    if contents := differences(record.hashes, identity.hashes):
        names = ", ".join(line.split(":")[0] for line in contents[:5])
        _refuse(
            folder, f"was started with other contents ({names})", "restore them, choose another name with -n, or start over with --fresh"
        )


def _refuse(folder: Path, what: str, hint: str) -> NoReturn:
    raise RunFault(f"{folder} {what}", hint=hint, where=[str(folder)])


def versions() -> dict[str, str]:
    """What decides the last bits of a result, besides what `auto` found: software, and the processor with its instructions."""
    modules = {"minitf": mini_tf, "torch": torch, "numpy": numpy, "safetensors": safetensors}
    named = {name: str(module.__version__) for name, module in modules.items()}
    hardware = {"cpu": torch.backends.cpu.get_cpu_capability(), "processor": " ".join(processor())}
    return {"python": platform.python_version(), **named, **hardware}


def fingerprint(run: Run, found: Mapping[str, Any]) -> dict[str, Any]:
    """All that decides the last bits here and now. found: the machine as it is used, as it goes into `Run.note_auto`."""
    decided = {**found, **versions(), **kind_sources.versions(run.manifest)}
    if kind := run.manifest.decides.get("optimizer.kind"):
        decided["optimizer"] = f"{kind} {IMPLEMENTATION}"
    if (device := str(found.get("device"))).startswith("cuda") and torch.cuda.is_available():
        decided["gpu"] = torch.cuda.get_device_name(device)
    return decided


def not_exact(run: Run, found: Mapping[str, Any]) -> list[str]:
    """What differs from when the checkpoint was saved that `run` continues from, such as `torch: "2.13.0" -> "2.14.0"`.

    Nothing before the first one; RunFault where all are damaged. Keys that one side does not have are passed over: other versions
    of minitf have others.
    """
    checkpoint = run.checkpoints.newest() if run.status == "continued" else None
    if checkpoint is None:
        return []
    first = {**run.manifest.auto, **run.manifest.versions, **kind_sources.versions_before(run.manifest)}
    before = checkpoint.fingerprint or first
    now = fingerprint(run, found)
    both = before.keys() & now.keys()
    return differences({name: before[name] for name in both}, {name: now[name] for name in both})


def check_exact(run: Run, found: Mapping[str, Any], exact: bool, warn: Callable[[str], None]) -> None:
    """Before a run is begun or continued: what its next checkpoints say of this machine, compared with what the last one says.

    RunFault where the result could differ in a bit if `exact` was asked for, else a warning.
    """
    changed = "; ".join(not_exact(run, found))
    if changed and exact:
        hint = "restore that, or set checkpoint.resume=auto to continue all the same"
        raise RunFault(f"{run.folder} cannot be continued bit-exact: {changed}", hint=hint, where=[str(run.folder)])
    if changed:
        warn(f"continuing, but not bit-exact: {changed}")
    run.fingerprint = fingerprint(run, found)

"""Open the run folder of a training command: new, continued or already finished; save a checkpoint or a set in it.

A refused start leaves no new folder and changes nothing in an existing one: nothing is written there before
`start_run`.
"""

import os
import platform
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import safetensors
import torch

import mini_tf
from mini_tf.optimizers import IMPLEMENTATION
from mini_tf.recipe.sections import Checkpoint
from mini_tf.run import loading, manifest
from mini_tf.run.checkpoint import MODEL
from mini_tf.run.disk import TEMPORARY, Disk, check_plain_files, make_folder, replace, storage_errors
from mini_tf.run.finding import OUTPUTS, is_same, try_lock
from mini_tf.run.folder import MODEL_TEXT_FILES, Run
from mini_tf.run.identity import Identity, differences, kind_versions
from mini_tf.run.manifest import Manifest
from mini_tf.run.metric_files import TensorBoardWriter, to_line
from mini_tf.run.tensors import CheckpointTensors
from mini_tf.system.errors import RunFault, StorageFault, UsageFault
from mini_tf.system.processor import processor
from mini_tf.system.safe_files import read_blocks, read_small_file

_ELSE = "choose another name with -n; --fresh makes a new run beside it"
_LONGEST_NAME, _LONGEST_PATH = 240, 3800
"""Bytes. System limits are 255 and 4095; the rest is for the number of a fresh start and checkpoint files."""


@dataclass(frozen=True)
class RunLocation:
    """The folder of a run: `directory`, or `directory`/`name` if a name is given."""

    directory: Path | None = None
    name: str | None = None
    fresh: bool = False
    """Start over in a new folder beside it (NAME.2, NAME.3, ...)."""
    is_run: bool = False
    """`directory` is a run that is to be continued itself, not one that was started afresh beside it."""

    def check(self) -> None:
        """UsageFault for a name that no run can have, RunFault for a folder that cannot be one; before any work."""
        if self.name is not None and (
            self.name == "last" or not re.fullmatch(r"[^/\\\x00-\x1f\x7f.-][^/\\\x00-\x1f\x7f]*", self.name)
        ):
            hint = "use letters, digits, - and _, a letter or digit first; choose the folder with -d DIR"
            raise UsageFault(f"{self.name[:80]!r} is not a valid run name", hint=hint)
        if (folder := explicit_folder(self)) is not None:
            _check_folder(folder)


def open_run(location: RunLocation, identity: Identity, command: Sequence[str] = (), disk: Disk | None = None) -> Run:
    """Open and lock the run of a command.

    RunFault if the folder is in use by another process, is not a run folder, or has a run with other data or another
    recipe.
    """
    disk = disk or Disk()
    folder = choose_folder(location, identity)
    lock, existed = _lock_folder(folder, disk)
    try:
        if set(os.listdir(folder)) <= {TEMPORARY + manifest.NAME}:  # left by a start that was killed at once
            check_plain_files(folder)
            run = Run(folder, _record(identity, command), lock, "new", disk)
            start_run(run, identity, existed)
            return run
        if not (folder / manifest.NAME).exists():
            raise RunFault.about(folder, "is not empty and not a minitf run folder", "choose another folder with -d")
        check_plain_files(folder)
        record = manifest.read(folder)
        _refuse_another_run(folder, record, identity)
        record = record.model_copy(
            update={"decides": {**record.decides, **identity.decides}}
        )  # adds keys of later versions
        return Run(folder, record, lock, "finished" if record.state == "done" else "continued", disk)
    except BaseException:
        os.close(lock)
        raise


def start_run(run: Run, identity: Identity, existed: bool = True) -> None:
    """Start writing to the folder, recipe files included, once the start is accepted; no effect if already started."""
    if not run.is_started:
        run.start(existed)
        for name, text in _recipe_files(identity).items():
            run.write(name, text)


def _recipe_files(identity: Identity) -> dict[str, str]:
    return {"recipe.yaml": identity.text, "resolved.yaml": identity.resolved}


def choose_folder(location: RunLocation, identity: Identity) -> Path:
    """The folder of a run, which need not exist: the last of NAME, NAME.2, ... that has this identity."""
    location.check()
    first = explicit_folder(location) or OUTPUTS.absolute() / identity.default_name
    _check_folder(first)
    if location.is_run:
        return first
    later = {
        number: first.with_name(f"{first.name}.{number}") for number in sorted(_numbers_beside(first), reverse=True)
    }
    if location.fresh:
        return first.with_name(f"{first.name}.{max([1, *later]) + 1}") if first.exists() or later else first
    return next((folder for folder in later.values() if _is_run(folder, identity)), first)


def _check_folder(first: Path) -> None:
    if max(len(os.fsencode(part)) for part in first.parts) > _LONGEST_NAME or len(os.fsencode(first)) > _LONGEST_PATH:
        fault = f"{first.name[:80]!r} is not a valid run name: the name or its path is too long"
        raise UsageFault(fault, hint="choose shorter ones with -n and -d")
    if (
        first.is_symlink()
        or (first.exists() and not first.is_dir())
        or first.resolve() in (Path("/"), Path(os.path.expanduser("~")).resolve())
    ):
        message = "cannot be a run folder: it is a file, a link, the root or the home directory"
        link = f"use the folder that the link points to: -d {os.path.realpath(first)}" if first.is_symlink() else None
        raise RunFault.about(first, message, link or "choose another folder with -d")


def explicit_folder(location: RunLocation) -> Path | None:
    """The folder given by a location, without the number of a fresh start; None if the identity determines it."""
    if location.name is not None:
        return (location.directory or OUTPUTS).absolute() / location.name
    return None if location.directory is None else location.directory.absolute()


def _numbers_beside(first: Path) -> list[int]:
    pattern = re.compile(re.escape(first.name) + r"\.([2-9]|[1-9]\d{1,5})")
    names = os.listdir(first.parent) if first.parent.is_dir() else []
    return [int(match[1]) for match in map(pattern.fullmatch, names) if match]


def _is_run(folder: Path, identity: Identity) -> bool:
    # The folder v1.2 may be a fresh start of v1 or an unrelated run with `-n v1.2`.
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


def _lock_folder(folder: Path, disk: Disk) -> tuple[int, bool]:
    """Lock a folder, created if missing. Returns the lock and whether the folder existed."""
    existed = True
    for _ in range(5):  # `minitf runs list` locks a folder briefly to find out whether it is in use
        existed = _create(folder, disk) and existed
        with suppress(FileNotFoundError):  # another process, whose start was refused, removed the folder
            lock = try_lock(folder)
            if lock is not None and is_same(folder, lock):
                return lock, existed
            if lock is not None:
                os.close(lock)
        time.sleep(0.05)
    holder = manifest.read(folder) if (folder / manifest.NAME).is_file() else Manifest()
    owner = (
        f"process {holder.pid} on {holder.host[:80]}" if holder.state == "running" and holder.pid else "another process"
    )
    raise RunFault.about(folder, f"is in use by {owner}", "wait until it ends, or start a new run with --fresh")


def _create(folder: Path, disk: Disk) -> bool:
    existed = folder.exists()
    try:
        make_folder(disk, folder)
    except OSError as error:
        fault = f"cannot create {folder}: {error.strerror}"
        raise StorageFault(fault, hint="choose another folder with -d DIR", where=[str(folder)]) from error
    return existed


def _refuse_another_run(folder: Path, record: Manifest, identity: Identity) -> None:
    changed = identity.changes_since(record.run_id, record.decides)
    shown = "; ".join(changed[:5]) + (f" (and {len(changed) - 5} more)" if len(changed) > 5 else "")
    if changed and record.run_id == identity.run_id:
        hint = f"`minitf pretrain {folder} -d {folder}` continues it with its own values; --fresh starts a new run"
        raise RunFault.about(folder, f"was started with other defaults: {shown}", hint)
    if changed:
        message = f"was started with another recipe: {shown}"
        hint = _ELSE
        if record.state == "done" and (steps := re.fullmatch(r"train\.steps: \d+ -> (\d+)", shown)):
            more, run = int(steps[1]) - (record.step or 0), shlex.quote(str(folder))
            further = f"`minitf pretrain {run} --extend {more}` trains it further; or "
            hint = f"{further if more > 0 else f'it has reached step {record.step}; '}{hint}"
        raise RunFault.about(folder, message, hint)
    if contents := differences(record.hashes, identity.hashes):
        names = ", ".join(line.split(":")[0] for line in contents[:5])
        message = f"was started with other contents of {names}"
        raise RunFault.about(folder, message, f"restore them, or {_ELSE}")


def versions() -> dict[str, str]:
    """Software versions and the processor with its instruction set, which determine the exact bits of a result."""
    modules = {"minitf": mini_tf, "torch": torch, "numpy": numpy, "safetensors": safetensors}
    named = {name: str(module.__version__) for name, module in modules.items()}
    capability = torch.backends.cpu.get_cpu_capability()
    hardware = {"cpu": capability, "processor": " ".join(processor(capability))}
    return {"python": platform.python_version(), **named, **hardware}


def fingerprint(run: Run, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that determines the exact bits of a result. settings: the resolved ones, as in `Run.record_auto`."""
    values = {**settings, **versions(), **kind_versions(run.manifest)}
    if kind := run.manifest.decides.get("optimizer.kind"):
        values["optimizer"] = f"{kind} {IMPLEMENTATION}"
    if (device := str(settings.get("device"))).startswith("cuda") and torch.cuda.is_available():
        values["gpu"] = torch.cuda.get_device_name(device)
    return values


def environment_changes(run: Run, settings: Mapping[str, Any]) -> list[str]:
    """Differences of the fingerprint from that of the run's newest checkpoint, such as `torch: "2.13.0" -> "2.14.0"`.

    Empty without a checkpoint; RunFault if all are damaged. Keys that only one of the two has, as versions of minitf
    differ, are skipped.
    """
    checkpoint = run.checkpoints.newest() if run.status == "continued" else None
    if checkpoint is None:
        return []
    before, now = checkpoint.fingerprint, fingerprint(run, settings)
    both = before.keys() & now.keys()
    return differences({name: before[name] for name in both}, {name: now[name] for name in both})


def restore(run: Run, identity: Identity, tensorboard: bool, warn: Callable[[str], None]) -> None:
    """Write what a finished run has lost since: its recipe, model.safetensors, or the event files of TensorBoard."""
    for name, text in _recipe_files(identity).items():
        if not (run.folder / name).exists():
            run.write(name, text)
    if tensorboard:
        run.tensorboard = TensorBoardWriter(run.folder)
        run.tensorboard.write_all()
    run.publish(warn=warn)


def check_exact(run: Run, settings: Mapping[str, Any], exact: bool, warn: Callable[[str], None]) -> None:
    """Compare the fingerprint with that of the last checkpoint, and set it for the next ones.

    If they differ: RunFault with `exact`, else a warning.
    """
    changed = "; ".join(environment_changes(run, settings))
    if changed and exact:
        hint = "restore the former values, or set checkpoint.resume=auto to continue anyway"
        raise RunFault.about(run.folder, f"cannot be continued bit-exact: {changed}", hint)
    if changed:
        warn(f"continuing, but not bit-exact: {changed}")
    run.fingerprint = fingerprint(run, settings)


def save_checkpoint(
    run: Run,
    step: int,
    tensors: CheckpointTensors,
    counters: dict[str, Any],
    score: float | None,
    settings: Checkpoint,
    warn: Callable[[str], None] = lambda line: None,
) -> None:
    """Save a checkpoint, update model.safetensors, and delete the checkpoints that `settings` does not keep."""
    run.save(step, tensors, counters, score)
    run.publish(warn=warn)
    run.rotate(settings.keep_last, settings.keep_best)


def write_metrics(run: Run, reports: Iterable[Mapping[str, Any]]) -> None:
    """Replace metrics.jsonl of a set: one line per finished run."""
    with storage_errors(f"recording the runs of {run.folder}"):
        replace(run.disk, run.folder / "metrics.jsonl", "".join(f"{to_line(report)}\n" for report in reports).encode())


def copy_model(run: Run, other: Path) -> None:
    """Copy the published model, config and tokenizers of a finished run; RunFault if missing or damaged."""
    record = manifest.read(other)
    if not loading.is_published(other, record, run.checkpoints.hashes):
        fault = f"{other / MODEL} is missing or damaged"
        raise RunFault(fault, hint="the same command restores it", where=[str(other / MODEL)])
    with storage_errors(f"copying {MODEL} of {other}"):
        for name in MODEL_TEXT_FILES:
            if (other / name).exists():
                replace(run.disk, run.folder / name, read_small_file(other / name))
        replace(run.disk, run.folder / MODEL, read_blocks(other / MODEL))
    run.update(
        step=record.step,
        best=record.best,
        model=record.model,
        auto=record.auto,
        model_run=other.name,
        train_examples=record.train_examples,
    )

"""Remove run folders: all that are named, or none. A folder is renamed before its content is deleted.

So a run is whole or gone at every moment; what a killed process has renamed is deleted by the next removal beside it.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mini_tf.run import finding, manifest
from mini_tf.run.disk import TEMPORARY, Disk, storage_errors, temporary_beside
from mini_tf.system.errors import RunFault

REMOVED = f"{TEMPORARY}rm-"


def removable(runs: Sequence[str]) -> list[Path]:
    """The folders of runs, each once; RunFault if one is no run, is a link, is part of a set, holds another run, or is
    in use.
    """
    folders = [*dict.fromkeys(_named_once(_whole_run(run)) for run in runs)]
    for folder in folders:
        if folder.is_symlink():
            raise RunFault.about(
                folder, f"is a link to {os.path.realpath(folder)}", "name that folder, or remove the link with rm"
            )
        if folder in finding.member_folders(folder.parent):
            raise RunFault.about(
                folder, f"is a part of the run {folder.parent}", f"`minitf runs rm {folder.parent}` removes all"
            )
        members = {folder, *_with_members(folder)}
        for path in sorted(folder.rglob(manifest.NAME)):
            if path.parent not in members:
                raise RunFault.about(folder, f"holds another run, {path.parent}", "move that run elsewhere first")
    with _locked(folders):
        return folders


def initialized_from(folder: Path) -> list[str]:
    """Names of the runs beside a run and in outputs that were initialized from its weights (`model.init_from`)."""
    sha256 = (manifest.read(folder).model or {}).get("sha256")
    names = []
    for other in dict.fromkeys([*finding.list_runs(folder.parent), *finding.list_runs(finding.OUTPUTS.absolute())]):
        try:
            init = manifest.read(other).hashes.get("init")
        except RunFault:  # a damaged run, which `runs list` names
            continue
        if init is not None and init == sha256:
            names.append(other.name)
    return names


def remove(folders: Sequence[Path], disk: Disk | None = None) -> None:
    """Remove the folders of `removable`; RunFault, and nothing is removed, if one is in use by now."""
    disk = disk or Disk()
    for parent in dict.fromkeys(folder.parent for folder in folders):
        _remove_leftovers(parent, disk)
    with _locked(folders):
        renamed = dict[Path, Path]()
        try:
            for folder in folders:
                with storage_errors(f"removing {folder}", "no run was removed"):
                    disk.rename(folder, temporary_beside(folder, REMOVED))
                renamed[folder] = temporary_beside(folder, REMOVED)
        except BaseException:
            for folder, temporary in renamed.items():
                disk.rename(temporary, folder)
            raise
        for folder, temporary in renamed.items():
            with storage_errors(f"removing {folder}", f"its rest is in {temporary}"):
                disk.sync(folder.parent)
                disk.remove(temporary)


def _whole_run(run: str) -> Path:
    try:
        return finding.find(run)
    except finding.NoSuchRun as fault:
        if fault.around is not None:
            fault.hint = f"it is a part of {fault.around[0]}, and runs are removed whole; checkpoint.keep_last=N of the"
            fault.hint += " recipe keeps fewer checkpoints"
        raise


def _named_once(folder: Path) -> Path:
    """The folder without `..` and without links above it; it may itself be a link."""
    return Path(os.path.realpath(folder)) if folder.name == ".." else folder.parent.resolve() / folder.name


def _with_members(folder: Path) -> Iterator[Path]:
    """The runs of a set, and their own ones."""
    for member in finding.member_folders(folder):
        yield member
        yield from _with_members(member)


@contextmanager
def _locked(folders: Sequence[Path]) -> Iterator[None]:
    """Hold the locks of runs and of their members; RunFault if a process has one of them."""
    with ExitStack() as locks:
        for folder in folders:
            for run in (folder, *_with_members(folder)):
                descriptor = finding.try_lock(run)
                if descriptor is None:
                    pid, state = (record := manifest.read(run)).pid, record.state
                    if state != "running" or pid is None:  # the lock is not that of the process that trained it
                        raise RunFault.about(run, "is in use by another process", "wait until it ends")
                    raise RunFault.about(
                        run, f"is in use by process {pid}", f"wait until it ends, or stop it: kill {pid}"
                    )
                locks.callback(os.close, descriptor)
        yield


def _remove_leftovers(parent: Path, disk: Disk) -> None:
    """Delete what killed removals have renamed; the folders of running ones are locked."""
    for path in sorted(parent.glob(f"{REMOVED}*")):
        descriptor = None if path.is_symlink() or not path.is_dir() else finding.try_lock(path)
        if descriptor is not None:
            with storage_errors(f"removing {path}"):
                disk.remove(path)
            os.close(descriptor)

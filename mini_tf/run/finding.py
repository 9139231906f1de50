"""Find a run folder by `last`, by NAME for outputs/NAME, or by its path. Does not import PyTorch."""

import errno
import fcntl
import os
import shlex
from pathlib import Path

from mini_tf.recipe.parsing.run_paths import run_around
from mini_tf.run import manifest
from mini_tf.run.disk import TEMPORARY
from mini_tf.run.manifest import Manifest
from mini_tf.system import hub
from mini_tf.system.errors import RunFault, suggest

OUTPUTS = Path("outputs")

_NONE_CLOSE = "`minitf runs list` lists all runs"
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
"""The errors of file systems that do not support locks, such as some network file systems."""


class NoSuchRun(RunFault):
    """There is no run of this name. around: of a part of a run, `run_around`."""

    around: tuple[Path, int | None] | None = None


def find(run: str | Path) -> Path:
    """The absolute path of a run folder; NoSuchRun, which suggests the closest name, if there is none."""
    if str(run) == "last":
        folders = list_runs(OUTPUTS)
        if not folders:
            raise RunFault("there is no last run: outputs has no run folder", hint="`minitf pretrain` creates one")
        return max(folders, key=lambda folder: (folder / manifest.NAME).stat().st_mtime_ns).absolute()
    # A run folder precedes another folder of that name; `manifest.read` reports why the latter is not a run folder.
    folders = sorted(
        filter(os.path.isdir, (Path(run), OUTPUTS / run)), key=lambda folder: not (folder / manifest.NAME).exists()
    )
    around = run_around(Path(run)) or run_around(OUTPUTS / run)
    if folders and (is_run(folders[0]) or around is None):
        if not is_run(folders[0]) and (inner := list_runs(folders[0])):
            message = f"is not a run folder, but has {len(inner)} of them"
            raise RunFault.about(folders[0], message, f"name one, such as {inner[0]}")
        if (
            not is_run(folders[0])
            and (folders[0] / "config.json").exists()
            and not (folders[0] / "resolved.yaml").exists()
        ):
            hint = f"`minitf import {shlex.quote(str(folders[0]))}` makes a run of a Hugging Face model"
            raise RunFault(f"{folders[0]} is not a run folder, but has a config.json", hint=hint, where=[str(run)])
        manifest.read(folders[0])
        return folders[0].absolute()
    hint = closest_run(run)
    if around is not None:
        hint = f"the run is its folder: {around[0]}"
    elif hint == _NONE_CLOSE and hub.is_model(str(run)):
        name = hub.PREFIX + str(run).removeprefix(hub.PREFIX)
        hint = f"a model of Hugging Face's hub: `minitf import {shlex.quote(name)}`"
    elif hint == _NONE_CLOSE and (any(map(str.isspace, str(run))) or os.path.isfile(run)):
        way = "`last` is the newest, `minitf runs list` lists all"
        hint = f"the run comes first: {way if list_runs(OUTPUTS) else '`minitf pretrain` creates one'}"
    fault = NoSuchRun(f"no such run: {str(run)[:200]}", hint=hint, where=[str(run)[:200]])
    fault.around = around
    raise fault


def closest_run(run: str | Path) -> str:
    names = ["last", *(folder.name for folder in list_runs(OUTPUTS))]
    return suggest(str(run), names, _NONE_CLOSE)


def is_run(folder: Path) -> bool:
    return os.path.isfile(folder / manifest.NAME)


MEMBERS = ("fold", "seed")
"""Names of the runs of a set, before their number: seed-1 in a run of several seeds, fold-1 in a cross-validation."""


def member_folders(folder: Path) -> list[Path]:
    """The run folders of the runs of a set that have begun, in order; empty for any other run."""
    members = []
    for kind in MEMBERS:
        number = 1
        while is_run(member := folder / f"{kind}-{number}"):
            members.append(member)
            number += 1
    return members


def model_folder(folder: Path) -> Path:
    """The folder with the recipe and the data of a run's model: of a cross-validation, that of one of its folds."""
    name = manifest.read(folder).model_run
    return folder / name if name is not None and name.startswith("fold-") else folder


def list_runs(folder: Path) -> list[Path]:
    """The run folders directly in a folder, sorted by name; without those that are being removed."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if is_run(path) and not path.name.startswith(TEMPORARY))


def state_of(folder: Path, record: Manifest) -> str:
    """The run's state; `killed` if run.json has `running` but no process has locked the folder."""
    return "killed" if record.state == "running" and not is_locked(folder) else record.state


def is_locked(folder: Path) -> bool:
    descriptor = try_lock(folder)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def try_lock(folder: Path) -> int | None:
    """Lock a run folder for writing until the returned descriptor is closed; None if another process has locked it.

    The lock is on the folder itself and ends with the process, also after kill -9, so no lock file can be left. On a
    file system without locks every process succeeds (`supports_locks`).
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            os.close(descriptor)
            raise
    return descriptor


def is_same(folder: Path, descriptor: int) -> bool:
    """Whether the folder that was opened as `descriptor` still has this path."""
    try:
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def supports_locks(descriptor: int) -> bool:
    """Whether the file system of a locked folder supports locks: locking its descriptor again then succeeds."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

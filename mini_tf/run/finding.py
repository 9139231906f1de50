"""Run folders by name: `last`, `outputs/NAME` by its NAME, or a path. Reads without torch."""

import difflib
import errno
import fcntl
import os
from pathlib import Path

from mini_tf.run import manifest
from mini_tf.run.manifest import Manifest
from mini_tf.system.errors import RunFault

OUTPUTS = Path("outputs")

_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
"""How file systems say that they have no locks: some network ones."""


def find(run: str | Path) -> Path:
    """The folder that RUN means, as an absolute path; RunFault with the nearest name if there is none."""
    if str(run) == "last":
        folders = list_runs(OUTPUTS)
        if not folders:
            raise RunFault("there is no last run: no run folders in outputs", hint="`minitf pretrain` makes one")
        return max(folders, key=lambda folder: (folder / manifest.NAME).stat().st_mtime_ns).absolute()
    # A folder that happens to have a run's name does not hide the run; alone it is told what it lacks.
    folders = sorted(filter(os.path.isdir, (Path(run), OUTPUTS / run)), key=lambda folder: not (folder / manifest.NAME).exists())
    if folders:
        manifest.read(folders[0])
        return folders[0].absolute()
    near = difflib.get_close_matches(str(run), [folder.name for folder in list_runs(OUTPUTS)], n=1)
    hint = f"did you mean {near[0]}?" if near else "`minitf runs list` shows what there is"
    raise RunFault(f"no such run: {str(run)[:200]}", hint=hint, where=[str(run)[:200]])


def seed_folder(folder: Path, number: int = 1) -> Path:
    """Of a run of several seeds: where the run of one of them lives, counted from 1."""
    return folder / f"seed-{number}"


def list_runs(folder: Path) -> list[Path]:
    """The run folders directly in a folder, by name; what is no run is passed over."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if os.path.isfile(path / manifest.NAME))


def state_of(folder: Path, record: Manifest) -> str:
    """The run's state; `killed` where it says running but no process holds the folder."""
    return "killed" if record.state == "running" and not is_held(folder) else record.state


def is_held(folder: Path) -> bool:
    """Whether a process is writing this run."""
    descriptor = try_to_hold(folder)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def try_to_hold(folder: Path) -> int | None:
    """Become the folder's one writer until the descriptor is closed; None if another process is.

    The lock is on the folder itself: nothing is left to clean up, and it dies with its process, kill -9 included. Where the
    file system has no locks everybody holds it (`has_locks`).
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


def has_locks(descriptor: int) -> bool:
    """Whether a folder that is held is really held: taking one's own lock again always succeeds where there are locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

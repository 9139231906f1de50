"""The cache: folders that can be rebuilt, verified on every use.

A folder is built under a temporary name and renamed when complete. Its manifest has the size and sha256 of each file; a
folder that does not verify is rebuilt.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mini_tf.system.errors import StorageFault, reason_of
from mini_tf.system.progress import show_progress
from mini_tf.system.safe_files import read_blocks, read_small_file, remove_path, temporary_path


def cache_path() -> Path:
    """`$MINITF_CACHE`, else ~/.cache/minitf, which need not exist; RuntimeError if the home directory is unknown."""
    return Path(os.environ.get("MINITF_CACHE") or Path.home() / ".cache" / "minitf").absolute()


def redirect_library_caches() -> None:
    """Set the environment variables, for this process and its subprocesses."""
    try:
        folder = cache_path()
    except RuntimeError:
        return  # `cache_folder` reports this where the cache is needed
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "torch"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    os.environ["TMPDIR"] = str(folder)  # PyTorch writes precompiled headers there
    os.environ["MPLCONFIGDIR"] = str(
        folder / "matplotlib"
    )  # not shared: our font list is incomplete (drawing/plotting.py)


MANIFEST = "manifest.json"
LOCKS = "building.lock"
CHUNK = 1 << 20
"""Bytes per read."""


def sha256_of(path: Path, prefix: str = "", advance: Callable[[int], None] = lambda n_bytes: None) -> str:
    """SHA-256 of `prefix` followed by a file's content, read in chunks; `advance` is called with the bytes of each."""
    sha = hashlib.sha256(prefix.encode())
    for block in read_blocks(path):
        sha.update(block)
        advance(len(block))
    return sha.hexdigest()


def cache_folder() -> Path:
    """The cache folder, created if missing: `$MINITF_CACHE`, else ~/.cache/minitf. StorageFault on failure."""
    try:
        folder = cache_path()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        fault = f"cannot create the cache folder: {reason_of(error)}"
        raise StorageFault(fault, hint="set MINITF_CACHE to a writable folder") from None
    loaded: Any = sys.modules.get("tempfile")
    if loaded and os.environ.get("TMPDIR") == str(folder):
        loaded.tempdir = None  # a library may have asked before the folder existed: Python then took /tmp for good
    return folder


class CacheEntry(NamedTuple):
    """A folder of the cache, the facts that `build` returned for it, and (size, sha256) of each of its files."""

    folder: Path
    facts: dict[str, Any]
    files: dict[str, tuple[int, str]]


def load(group: str, key: str, say: Callable[[str], None] = lambda line: None) -> CacheEntry | None:
    """The folder group/key of the cache; None if it is missing or damaged. `say` prints which of these it is."""
    folder = cache_folder() / group / key
    if not os.path.lexists(folder):
        say(f"data: not in the cache ({key[:12]}); reading and encoding it")
    elif isinstance(entry := _verify(folder), CacheEntry):
        say(f"data: loaded from the cache ({key[:12]}): same data and settings")
        return entry
    else:
        say(f"data: the cache is damaged ({key[:12]}: {entry}); rebuilding it")
    return None


def build_or_load(
    group: str, key: str, build: Callable[[Path], dict[str, Any]], say: Callable[[str], None] = lambda line: None
) -> CacheEntry:
    """The folder group/key of the cache; if missing or damaged, `build(folder)` fills it and returns its facts.

    Of several processes that need it at once, one builds it and the others wait.
    """
    if (entry := load(group, key, say)) is not None:
        return entry
    with _only_builder(f"{group}/{key}"):
        if isinstance(built := _verify(cache_folder() / group / key), CacheEntry):
            say(f"data: loaded from the cache ({key[:12]}): another process has just built it")
            return built
        with draft(group, key) as folder:
            return publish(folder, group, key, build(folder))


@contextlib.contextmanager
def draft(group: str, key: str) -> Iterator[Path]:
    """A temporary folder for an entry, to `publish`; removed at the end."""
    folder = cache_folder() / group / key
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(folder)
    temporary.mkdir()
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def publish(temporary: Path, group: str, key: str, facts: dict[str, Any]) -> CacheEntry:
    """Make a complete draft the folder group/key of the cache, with its facts and a manifest."""
    files = {f.name: (f.stat().st_size, sha256_of(f)) for f in sorted(temporary.iterdir())}
    manifest = {"facts": facts, "files": files}
    (temporary / MANIFEST).write_text(json.dumps(manifest | {"sha256": hash_of(manifest)}, indent=1))
    folder = cache_folder() / group / key
    _replace(folder, temporary)
    return CacheEntry(folder, facts, files)


def find_entry(group: str, matches: Callable[[CacheEntry], bool]) -> CacheEntry | None:
    """The first intact folder of a group for which `matches` is true."""
    folders = sorted(path.parent for path in (cache_folder() / group).glob(f"[!.]*/{MANIFEST}"))
    entries = (entry for folder in folders if isinstance(entry := _read_manifest(folder), CacheEntry))
    return next((entry for entry in entries if matches(entry) and isinstance(_verify(entry.folder), CacheEntry)), None)


def _replace(folder: Path, temporary: Path) -> None:
    """Rename `temporary` to `folder`; an intact existing one is kept, since equal keys mean equal content."""
    with _locked(
        folder.parent
    ):  # otherwise another process may replace and use the damaged folder before it is removed here
        if os.path.lexists(folder) and not isinstance(_verify(folder), CacheEntry):
            damaged = temporary_path(folder.with_name(f"{folder.name}.bad"))
            os.replace(folder, damaged)
            remove_path(damaged)
        try:
            os.replace(temporary, folder)
        except OSError:
            if not isinstance(_verify(folder), CacheEntry):
                raise


@contextlib.contextmanager
def _locked(group: Path) -> Iterator[None]:
    """Hold an exclusive lock on a group, if its file system supports locks."""
    lock = os.open(group, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough: a forked process shares the descriptor
        os.close(lock)


@contextlib.contextmanager
def _only_builder(entry: str) -> Iterator[None]:
    """Hold the lock on an entry of the cache, if the file system supports locks; dead processes hold none.

    The lock is on one byte of a file, since a file for each entry would have to be removed.
    """
    with (cache_folder() / LOCKS).open("ab") as file:
        byte = int(hash_of(entry)[:15], 16)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                with show_progress(
                    f"waiting for another process, which is building the same {entry.partition('/')[0]}"
                ):
                    fcntl.lockf(file, fcntl.LOCK_EX, 1, byte)
        yield  # closing the file unlocks it


def _verify(folder: Path) -> CacheEntry | str:
    """The entry after a check of all its files, or a description of the damage."""
    if isinstance(entry := _read_manifest(folder), str):
        return entry
    try:
        for name, (size, sha) in entry.files.items():
            file = folder / Path(name).name
            if file.stat().st_size != size or sha256_of(file) != sha:
                return f"{name} has changed"
        return entry
    except OSError as error:
        return f"{Path(str(error.filename)).name}: {error.strerror}"
    except ValueError:
        return f"{MANIFEST} lists an invalid file name"


def _read_manifest(folder: Path) -> CacheEntry | str:
    """The entry as its manifest describes it, or a description of the damage; the files are not checked."""
    try:
        manifest = json.loads(read_small_file(folder / MANIFEST))
        sha256 = manifest.pop("sha256")
        if sha256 != hash_of(manifest):
            return f"{MANIFEST} has changed"
        return CacheEntry(
            folder, dict(manifest["facts"]), {name: (size, sha) for name, (size, sha) in manifest["files"].items()}
        )
    except OSError as error:
        return f"{Path(str(error.filename)).name}: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"{type(error).__name__} in {MANIFEST}"


def hash_of(content: object) -> str:
    """SHA-256 (hex) of a JSON value; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

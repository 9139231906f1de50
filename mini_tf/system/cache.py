"""Folders that can always be made again: built under a temporary name, checked whenever they are used.

A folder appears under its name only when it is complete (rename), with a manifest of the size and sha256 of each of its
files; where one does not verify, it is made anew.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mini_tf.system.drafts import draft_of, remove
from mini_tf.system.errors import StorageFault
from mini_tf.system.library_caches import cache_place
from mini_tf.system.plain_file import open_plain, read_record

MANIFEST = "manifest.json"
CHUNK = 1 << 20
"""Bytes that are read at once."""


def sha256_of(path: Path, prefix: str = "") -> str:
    """Hash of `prefix` and a file's content, read in bounded memory."""
    sha = hashlib.sha256(prefix.encode())
    with open_plain(path) as file:
        while block := file.read(CHUNK):
            sha.update(block)
    return sha.hexdigest()


def cache_folder() -> Path:
    """Where everything lives that can be made again: `$MINITF_CACHE`, else ~/.cache/minitf. Made if need be."""
    try:
        folder = cache_place()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        raise StorageFault(f"cannot make the cache folder: {error}", hint="set MINITF_CACHE to a folder that can be written") from None
    return folder


class Cached(NamedTuple):
    """A folder of the cache, the facts it was built with, and size and sha256 of each of its files."""

    folder: Path
    facts: dict[str, Any]
    files: dict[str, tuple[int, str]]


def cached(group: str, key: str, build: Callable[[Path], dict[str, Any]], say: Callable[[str], None]) -> Cached:
    """The folder group/key; `build(folder)` fills it where it is not there, and returns the facts.

    `say` is told whether it was there, and why not.
    """
    folder = cache_folder() / group / key
    if not os.path.lexists(folder):
        say(f"text: not in the cache yet ({key[:12]}); reading and encoding it")
    elif isinstance(found := _verify(folder), Cached):
        say(f"text: taken from the cache ({key[:12]}): same text, same settings")
        return found
    else:
        say(f"text: the cache is damaged ({key[:12]}: {found}); making it anew")
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_of(folder)
    draft.mkdir()
    try:
        facts = build(draft)
        files = {f.name: (f.stat().st_size, sha256_of(f)) for f in sorted(draft.iterdir())}
        manifest = {"facts": facts, "files": files}
        (draft / MANIFEST).write_text(json.dumps(manifest | {"sha256": hash_of(manifest)}, indent=1))
        _publish(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Cached(folder, facts, files)


def found_by(group: str, wanted: Callable[[Cached], bool]) -> Cached | None:
    """The first sound folder of a group that is `wanted`."""
    folders = sorted(path.parent for path in (cache_folder() / group).glob(f"[!.]*/{MANIFEST}"))
    all_stated = (found for folder in folders if isinstance(found := _stated(folder), Cached))
    return next((found for found in all_stated if wanted(found) and isinstance(_verify(found.folder), Cached)), None)


def _publish(draft: Path, folder: Path) -> None:
    """Rename; where another process was faster its folder is as good, since both hold what the key says."""
    with _alone_in(folder.parent):  # else what is found damaged here may be mended, and in use, when it is moved aside
        if os.path.lexists(folder) and not isinstance(_verify(folder), Cached):
            damaged = draft_of(folder.with_name(f"{folder.name}.bad"))
            os.replace(folder, damaged)
            remove(damaged)
        try:
            os.replace(draft, folder)
        except OSError:
            if not isinstance(_verify(folder), Cached):
                raise


@contextlib.contextmanager
def _alone_in(group: Path) -> Iterator[None]:
    """No other process publishes there meanwhile, if its file system can lock."""
    lock = os.open(group, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_UN)  # a process forked meanwhile has the descriptor too, and would keep the lock
        os.close(lock)


def _verify(folder: Path) -> Cached | str:
    """What is there, or what is wrong."""
    if isinstance(found := _stated(folder), str):
        return found
    try:
        for name, (size, sha) in found.files.items():
            file = folder / Path(name).name
            if file.stat().st_size != size or sha256_of(file) != sha:
                return f"{name} has changed"
        return found
    except OSError as error:
        return f"{Path(str(error.filename)).name}: {error.strerror}"
    except ValueError:
        return f"{MANIFEST} names a file as none can be called"


def _stated(folder: Path) -> Cached | str:
    """What the manifest says is there, or what is wrong with it."""
    try:
        manifest = json.loads(read_record(folder / MANIFEST))
        sealed = manifest.pop("sha256")
        if sealed != hash_of(manifest):
            return f"{MANIFEST} has changed"
        return Cached(folder, dict(manifest["facts"]), {name: (size, sha) for name, (size, sha) in manifest["files"].items()})
    except OSError as error:
        return f"{Path(str(error.filename)).name}: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"{type(error).__name__} in {MANIFEST}"


def hash_of(content: object) -> str:
    """SHA-256, as hexadecimal, of what JSON can say; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

"""The file with the traceback of a bug."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mini_tf.system.errors import MinitfError


def save_traceback(trace: str, in_run: Callable[[str], Path] | None) -> Path | None:
    """Write the traceback into the run folder, else into the cache; None if neither is writable."""
    for keep in (in_run, _save_in_cache):
        with suppress(OSError, MinitfError):
            if keep is not None:
                return keep(trace)
    return None


def _save_in_cache(trace: str) -> Path:
    from mini_tf.system.cache import cache_folder

    folder = cache_folder() / "crashes"
    folder.mkdir(exist_ok=True)
    path = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.txt"
    path.write_text(trace, encoding="utf-8", errors="backslashreplace")
    return path

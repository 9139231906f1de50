"""What is made once for all workers of a test session, though each worker has session fixtures of its own."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Path]) -> Path:
    """What `make(folder)` returned for the first worker that asked; the others wait for it."""
    place = factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else factory.getbasetemp()
    with open(place / f"{name}.lock", "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        if not (made := lock.read()):
            shutil.rmtree(place / name, ignore_errors=True)  # of a worker in which it failed
            (place / name).mkdir()
            made = str(make(place / name))
            lock.write(made)
        return Path(made)

"""Checks the shapes in signatures at every call (jaxtyping, beartype), and keeps tests away from the user's own cache."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from jaxtyping import install_import_hook
from shared import once

# Before anything of mini_tf is imported: what a test reads or writes is its own, and one thread leaves the other core to others.
os.environ["MINITF_CACHE"] = os.path.join(tempfile.gettempdir(), f"minitf-tests-{os.getuid()}")
os.environ.setdefault("OMP_NUM_THREADS", "1")
hook = install_import_hook(["mini_tf.nn", "mini_tf.attention", "mini_tf.positions"], "beartype.beartype")
hook.__enter__()


@pytest.fixture(scope="session", autouse=True)
def quick() -> Iterator[None]:
    """Without what takes most of a tiny run's time: waiting for the disk, which nobody unplugs here, and the picture of the losses."""
    from mini_tf.run.folder import Run  # after the hook

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr(Run, "draw", lambda run: None)
        yield


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run that names classes; tests only read it."""
    import tiny_tasks

    return once(tmp_path_factory, "classifier", tiny_tasks.classifier)


@pytest.fixture(scope="session")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run that tags words; tests only read it."""
    import tiny_tasks

    return once(tmp_path_factory, "tagger", tiny_tasks.tagger)


@pytest.fixture(scope="session")
def regressor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run that gives numbers; tests only read it."""
    import tiny_tasks

    return once(tmp_path_factory, "regressor", tiny_tasks.regressor)

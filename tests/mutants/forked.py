"""Runs pytest in forks of one process that has imported torch and the like, each in a copy of the checkout.

A fork costs 0.1 s where a new process costs 4 s. Nothing of mini_tf is imported before the fork, and a fault is written
into a copy of the checkout, never into the checkout itself, so that processes that a test starts meet the fault as
well.
"""

import gc
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

HEAVY = (
    "torch", "torch.nn.functional", "torch.utils.flop_counter", "torch.utils.checkpoint", "torch.testing",
    "torch.distributed.tensor",
    "torch.ao.quantization", "numpy", "pytest",
    *(f"_pytest.{name}" for name in ("helpconfig", "junitxml", "pastebin", "skipping")),
    *(f"_pytest.{name}" for name in ("setuponly", "setupplan", "unittest", "warnings", "threadexception",
        "unraisableexception")), "pdb",
    "hypothesis", "hypothesis.strategies", "tokenizers", "typer.testing", "rich.console", "rich.table", "rich.live",
    "yaml", "tqdm",
    *(f"pydantic.{name}" for name in ("main", "fields", "types", "type_adapter", "json_schema",
        "functional_validators", "config")),
    "safetensors.torch", "safetensors.numpy", "matplotlib.figure", "matplotlib.style",
    "matplotlib.backends.backend_agg", "jaxtyping",
    "beartype",
    *(f"transformers.models.{name}.modeling_{name}" for name in ("bert", "gpt2", "bart", "t5", "marian", "mbart")),
    "PIL.PngImagePlugin", "sacrebleu", "sklearn.metrics", "pyarrow.parquet", "rouge_score.rouge_scorer",
    "seqeval.metrics",
    "multiprocessing.pool", "concurrent.futures", "coverage",
)  # fmt: skip
"""What tests import that is not mini_tf's; what is not installed is left out."""
MEMORY = 8 * 2**30
"""Bytes that a process may take, so that a fault that takes too much is one that is found."""
PYTEST = ("-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--tb=short")


def prepare() -> None:
    """Import what takes long, once."""
    os.environ.update(OMP_NUM_THREADS="1", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", MPLBACKEND="agg")
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where `minitf` is
    for name in HEAVY:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def checkout(root: Path) -> list[str]:
    """The files that belong to a checkout, with new ones that git does not ignore."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    return [name for name in names if name and (root / name).is_file()]


class Tree:
    """A copy of the checkout, in which one thing runs at a time."""

    def __init__(self, root: Path, folder: Path, names: list[str]) -> None:
        self.root, self.folder, self.path = root, folder, folder / "minitf"
        self.diary = folder / "diary.txt"
        self.path.mkdir(parents=True, exist_ok=True)
        shared, there = root.parent / "shared", folder / "shared"
        if shared.is_dir() and not there.exists():
            there.symlink_to(shared.resolve())
        for file in [file for file in self.path.rglob("*") if file.is_file() and file.suffix != ".pyc"]:
            if file.relative_to(self.path).as_posix() not in names:
                file.unlink()
        for name in names:
            self.restore(name)
        (self.path / "sitecustomize.py").write_bytes(Path(__file__).with_name("elsewhere.py").read_bytes())

    def write(self, name: str, content: bytes) -> None:
        """Give a file another content. What Python compiled of it goes, since it is told from the new by time and size
        alone.
        """
        file = self.path / name
        if file.is_file() and file.read_bytes() == content:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        shutil.copymode(self.root / name, file)
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()

    def restore(self, name: str) -> None:
        self.write(name, (self.root / name).read_bytes())

    def start(self, action: Callable[[], Any], limit: float) -> "Fork":
        return Fork(self, action, limit)


class Fork:
    """A forked process that does something in a tree, and whose JSON-able result is read when it has ended."""

    def __init__(self, tree: Tree, action: Callable[[], Any], limit: float) -> None:
        self.tree, self.began, self.limit = tree, time.monotonic(), limit
        self.result_file, self.temporary = tree.folder / "result.json", tree.folder / "tmp"
        self.result_file.unlink(missing_ok=True)
        tree.diary.write_text("")
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir(exist_ok=True)  # what the run before left behind may still write there
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._in_the_child(action)
            finally:
                os._exit(70)

    def _in_the_child(self, action: Callable[[], Any]) -> None:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        path = self.tree.path
        os.chdir(path)
        log = os.open(self.tree.folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        here = str(self.tree.root)
        sys.path[:] = [str(path), *(entry for entry in sys.path if entry not in ("", here))]
        os.environ.update(PYTHONPATH=str(path), TMPDIR=str(self.temporary))
        sys.modules.pop("tests", None)
        import tempfile

        import torch

        tempfile.tempdir = None
        torch.set_num_threads(1)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        result = action()
        self.result_file.write_text(json.dumps(result))
        sys.stdout.flush()
        os._exit(0)

    def ended(self) -> bool:
        """Whether it is over; ends it where its time is up."""
        pid, self.status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0 and time.monotonic() - self.began > self.limit:
            self.stop()
            return True
        return pid != 0

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            _, self.status = os.waitpid(self.pid, 0)

    @property
    def result(self) -> Any:
        """What the action returned; None where the process was ended."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # what tests left running
        return json.loads(self.result_file.read_text()) if self.result_file.is_file() else None


def in_turn(trees: list[Tree], jobs: Iterator[tuple[Any, Callable[[Tree], Fork]]]) -> Iterator[tuple[Any, Fork]]:
    """Do jobs, one in each tree at a time; yields each when it has ended."""
    free, running = list(trees), []
    try:
        while True:
            while free and (job := next(jobs, None)):
                running.append((job[0], job[1](free.pop())))
            if not running:
                return
            time.sleep(0.01)
            for name, fork in [pair for pair in running if pair[1].ended()]:
                running.remove((name, fork))
                yield name, fork
                free.append(fork.tree)
    finally:
        for _, fork in running:
            fork.stop()

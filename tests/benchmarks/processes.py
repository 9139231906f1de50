"""Whole processes: the seconds they take, their largest memory, and when they first write a word."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SHORTEST = 0.002
"""Seconds between two looks at a file."""


@dataclass(frozen=True)
class Finished:
    """seconds: from start to end; peak: the most memory in bytes; stdout."""

    seconds: float
    peak: int
    stdout: str


def run(command: Sequence[str], folder: Path, cwd: Path | None = None) -> Finished:
    """Run a command to its end, its stdout kept in `folder`. Raises CalledProcessError where it fails."""
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=cwd)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.stderr.write((folder / "stderr").read_text(errors="replace")[-2000:])
        raise subprocess.CalledProcessError(process.returncode, list(command))
    unit = 1 if sys.platform == "darwin" else 1024
    return Finished(seconds, usage.ru_maxrss * unit, (folder / "stdout").read_text(errors="replace"))


def until(command: Sequence[str], folder: Path, file: Path, word: str, cwd: Path | None = None) -> float:
    """Seconds until a command has written `word` to a file (its stdout is `folder`/stdout); then it is stopped."""
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=cwd)
        while not (file.exists() and word in file.read_text(errors="replace")):
            if process.poll() is not None:
                raise RuntimeError(f"ended without {word!r}: {(folder / 'stderr').read_text(errors='replace')[-500:]}")
            time.sleep(SHORTEST)
        seconds = time.perf_counter() - began
        process.terminate()
        process.wait()
    return seconds


@contextmanager
def temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="minitf-benchmark-") as folder:
        yield Path(folder)


@contextmanager
def nanogpt_with(text: Path, checkout: Path) -> Iterator[Path]:
    """A copy of the checkout without its history, whose data/shakespeare_char holds `text`: ids of characters, the last
    tenth held out.
    """
    import pickle

    import numpy as np

    with temporary_folder() as folder:
        copy = folder / "nanoGPT"
        shutil.copytree(
            checkout, copy, ignore=shutil.ignore_patterns(".git", "out*", "*.bin", "*.pkl", "*.ipynb", "assets")
        )
        points = np.frombuffer(text.read_text(encoding="utf-8").encode("utf-32-le"), "<u4")
        known, ids = np.unique(points, return_inverse=True)
        data, cut = copy / "data" / "shakespeare_char", int(len(ids) * 0.9)
        for name, part in (("train", ids[:cut]), ("val", ids[cut:])):
            part.astype(np.uint16).tofile(data / f"{name}.bin")
        letters = [chr(point) for point in known]
        meta = {
            "vocab_size": len(letters),
            "itos": dict(enumerate(letters)),
            "stoi": {c: i for i, c in enumerate(letters)},
        }
        (data / "meta.pkl").write_bytes(pickle.dumps(meta))
        yield copy


NANOGPT = [
    "train.py", "config/train_shakespeare_char.py", "--device=cpu", "--compile=False", "--eval_iters=20",
    "--log_interval=100",
    "--block_size=64", "--batch_size=12", "--n_layer=4", "--n_head=4", "--n_embd=128", "--max_iters=2000",
    "--lr_decay_iters=2000",
    "--dropout=0.0",
]  # fmt: skip
"""The README's command for a CPU; a later word of the same name counts."""
LARGER = ["--block_size=256", "--batch_size=16", "--n_layer=6", "--n_head=6", "--n_embd=384"]
"""6x384 as in shapes.py."""


def nanogpt_command(*words: str) -> list[str]:
    return [sys.executable, "-u", *NANOGPT, *words]

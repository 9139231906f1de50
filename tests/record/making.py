"""Makes a record: trains the runs and gives the commands in a temporary folder with a cache of its own, in this
process.

Only the run that is killed has a process to be killed, since importing torch takes longer than most of the rest. Of
mini_tf it knows the command line and the names of files alone, so that it outlasts what it compares.
"""

import hashlib
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.machine import name as processor
from commands import ROOT, minitf

from .commands import COMMANDS
from .normalise import UNCOMPARED, normalised
from .runs import RUNS, Run, needed, write_files

PACKAGES = (
    "torch",
    "numpy",
    "tokenizers",
    "safetensors",
    "pydantic",
    "typer",
    "rich",
    "scikit-learn",
    "seqeval",
    "sacrebleu",
    "rouge-score",
)
PINNED = {
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "COLUMNS": "100",
    "TERM": "dumb",
    "TZ": "UTC",
    "PYTHONPATH": str(ROOT),
}
TRIES = 5

Told = Callable[[str], None]


def machine() -> dict[str, Any]:
    """What decides the last bits of all that is recorded, besides our own code."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "instructions": _instructions(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: _version(package) for package in PACKAGES},
    }


def commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return git("rev-parse", "HEAD") + (", with changes" if git("status", "--porcelain", "--untracked-files=no") else "")


def make(runs: Iterable[str], commands: Iterable[str], tell: Told) -> dict[str, Any]:
    """A record of these commands, and of these runs and those that they need."""
    asked = {name: COMMANDS[name] for name in COMMANDS if name in set(commands)}
    wanted = set(runs).union(*(command.needs | needed(" ".join(command.lines)) for command in asked.values()))
    wanted = wanted.union(*(needed(name) for name in wanted))
    record: dict[str, Any] = {"commit": commit(), "machine": machine(), "runs": {}, "commands": {}}
    stood = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="minitf-record-") as made:
        folder = Path(made).resolve()
        _pin(folder)
        os.chdir(folder)
        try:
            write_files(folder)
            for name in filter(wanted.__contains__, RUNS):
                record["runs"][name] = _told(name, tell, lambda name=name: _train(folder, name, RUNS[name]))
            for name, command in asked.items():
                record["commands"][name] = _told(
                    name, tell, lambda command=command: _give(folder, command.lines, command.stdin)
                )
        finally:
            os.chdir(stood)
    return record


def _pin(folder: Path) -> None:
    """The environment of this process, for good: what a person has set there plays no part."""
    for variable in [name for name in os.environ if name.startswith("MINITF_")]:
        del os.environ[variable]
    os.environ.update(PINNED, MINITF_CACHE=str(folder / "cache"))
    time.tzset()


def _told(name: str, tell: Told, action: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    began = time.monotonic()
    part = action()
    tell(
        f"{time.monotonic() - began:5.1f} s  {name}: exit {', '.join(str(said['exit_code']) for said in part['said'])}"
    )
    return part


def _train(folder: Path, name: str, run: Run) -> dict[str, Any]:
    """One run, and all that it leaves in its folder. What a continued run says depends on where it was killed."""
    place, lines = folder / "outputs" / name, [f"{line} -d outputs -n {name} -v" for line in run.lines]
    if run.killed_at:
        _kill(lines[0], place, place / "checkpoints" / f"step-{run.killed_at:08d}")
    said = [_said(folder, line) for line in lines]
    if run.killed_at:
        said = [{**one, "stderr": "(where it continued)"} for one in said]
    files = sorted(
        (path for path in place.rglob("*") if path.is_file()), key=lambda path: (len(path.parts), path)
    )  # metrics come early
    return {"said": said, "files": {path.relative_to(place).as_posix(): fact(path, folder) for path in files}}


def _kill(line: str, place: Path, reached: Path) -> None:
    """Train in a process, and kill -9 it once `reached` is there; once more where it was done before the kill
    arrived.
    """
    for _ in range(TRIES):
        shutil.rmtree(place, ignore_errors=True)
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(
            [sys.executable, "-m", "mini_tf", *shlex.split(line)], stdin=quiet, stdout=quiet, stderr=quiet
        )
        while not reached.exists() and process.poll() is None:
            time.sleep(1e-3)
        process.kill()
        if process.wait() == -signal.SIGKILL:
            return
    raise RuntimeError(f"minitf {line}: ended before it could be killed, {TRIES} times")


def _give(folder: Path, lines: Iterable[str], stdin: str) -> dict[str, Any]:
    """Commands one after the other, and the files that they put beside the recipes."""
    before = set(folder.iterdir())
    said = [_said(folder, line, stdin) for line in lines]
    files = sorted(path for path in set(folder.iterdir()) - before if path.is_file())
    return {"said": said, "files": {path.name: fact(path, folder) for path in files}}


def _said(folder: Path, line: str, stdin: str = "") -> dict[str, Any]:
    done = minitf(*shlex.split(line), stdin=stdin)
    stdout, stderr = (without_paths(text, folder) for text in (done.stdout, done.stderr))
    return {"line": line, "exit_code": done.exit_code, "stdout": stdout, "stderr": stderr}


def without_paths(text: str, folder: Path) -> str:
    """The same text wherever the record and the package stand."""
    return text.replace(str(folder), "<dir>").replace(str(ROOT), "<repository>")


def fact(path: Path, folder: Path) -> dict[str, Any]:
    """What a record has of a file: a hash, and what it takes to say where two files differ."""
    if path.name in UNCOMPARED or path.suffix in UNCOMPARED:
        return {}
    content = path.read_bytes()
    if path.suffix == ".safetensors":
        header, data = halves(content)
        return {"sha256": _sha256(content[:8], normalised(header.decode()).encode(), data), "tensors": tensors(content)}
    if path.suffix == ".npy":
        return {"sha256": _sha256(content)}
    text = without_paths(content.decode(), folder)
    return {"sha256": _sha256(text.encode()), "text": text}


def tensors(content: bytes) -> dict[str, str]:
    """Type, shape and hash of each tensor of a safetensors file."""
    header, data = halves(content)
    return {
        name: f"{one['dtype']} {one['shape']} {_sha256(data[slice(*one['data_offsets'])])[:16]}"
        for name, one in json.loads(header).items()
        if name != "__metadata__"
    }


def halves(content: bytes) -> tuple[bytes, bytes]:
    """The JSON header of a safetensors file, behind its length, and the bytes of the tensors."""
    size = 8 + int.from_bytes(content[:8], "little")
    return content[8:size], content[size:]


def _instructions() -> str:
    """A hash of what the processor can do: virtual machines often hide which one it is."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return _sha256(flags.encode())[:8]


def _sha256(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

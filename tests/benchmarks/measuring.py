"""Runs the sides of a contest in turn, and keeps every measurement in a file as soon as it is there.

A measurement is known by its command and the number of its run, so the same command is never measured twice, in
whatever contest.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .contest import ROOT, RUN, Contest, Side, device

CACHE = Path(tempfile.gettempdir(), "minitf-benchmarks", "cache")
LONGEST = 3600.0
"""Seconds after which a command is given up."""


class Record:
    """The measurements of a file; path None keeps them in memory only. `faults`: of commands that failed, tried again
    next time.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.content: dict[str, Any] = json.loads(path.read_text()) if path is not None and path.exists() else {}
        self.measurements: dict[str, dict[str, Any]] = self.content.setdefault("measurements", {})
        self.faults: dict[str, str] = {}

    def note(self, name: str, value: Any) -> None:
        """Keep something beside the measurements: what was compared, on which machine, what came out."""
        self.content[name] = value
        self.write()

    def add(self, key: str, figures: Mapping[str, Any]) -> None:
        self.measurements[key] = dict(figures)
        self.write()

    def write(self) -> None:
        if self.path is not None:
            draft = self.path.with_name(f".{self.path.name}.tmp")
            draft.write_text(json.dumps(self.content, indent=1) + "\n")
            os.replace(draft, self.path)

    def runs(self, side: Side, runs: int) -> list[dict[str, Any] | None]:
        """What a side measured in each run; None where it did not."""
        return [self.measurements.get(key_of(side, run)) for run in range(runs)]


def spoken(side: Side) -> str:
    """The command of a side as a person types it."""
    words = ["python" if word == sys.executable else word for word in side.command]
    return " ".join(f"'{word}'" if " " in word else word for word in words)


def key_of(side: Side, run: int) -> str:
    return f"{spoken(side)}  # run {run}{'' if device() == 'cpu' else f' on {device()}'}"


def measure(contest: Contest, runs: int, record: Record, threads: int, tell: Callable[[str], None]) -> None:
    """Every side once, then all of them again, the other way round: what drifts on the machine meets all sides
    alike.
    """
    for run in range(runs):
        for side in contest.sides if run % 2 == 0 else reversed(contest.sides):
            key = key_of(side, run)
            if side.missing or key in record.measurements or key in record.faults:
                continue
            tell(f"{contest.name}: {side.name}, run {run + 1} of {runs}")
            try:
                record.add(key, call(side, run, threads))
            except MeasurementFailed as failed:
                record.faults[key] = str(failed)
                tell(f"  failed: {failed}")


class MeasurementFailed(Exception):
    """A command did not end well, or printed no figures."""


def call(side: Side, run: int, threads: int) -> dict[str, Any]:
    """The figures that the command of a side prints as its last line."""
    command = [word.replace(RUN, str(run)) for word in side.command]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment(threads), capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise MeasurementFailed(f"no answer after {LONGEST:g} s") from late
    last = (done.stdout.strip().splitlines() or [""])[-1]
    if done.returncode != 0 or not last.startswith("{"):
        complaint = (done.stderr.strip().splitlines() or [last])[-1]
        raise MeasurementFailed(f"exit code {done.returncode}: {complaint}")
    figures: dict[str, Any] = json.loads(last)
    return figures


def environment(threads: int) -> dict[str, str]:
    """The same threads for everybody, no network, and a cache of our own."""
    words = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")}
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true", "NO_COLOR": "1"}
    return {**os.environ, **words, **quiet, "MINITF_CACHE": str(CACHE)}

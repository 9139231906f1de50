"""Runs the processes of a part side by side, and keeps every result as soon as it is there.

A process that ends, or says nothing for too long, before all its results are there is started again for those that are
left; the result that it was at is noted as failed.
"""

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..contest import ROOT
from ..measuring import Record, environment

END = ""
"""Stands for the end of what a process writes, whose lines end with a line feed."""
RESTART = 3
"""Exit code of a process that told of its last result, but is not fit for the next one."""
SHOWN = 300
"""Characters of a message of a process that failed."""


@dataclass(frozen=True)
class Job:
    """command: prints lines of JSON, for `keys`. divisible: it can be called for some of the keys, as its last words.
    silence: seconds without a line after which it is given up.
    """

    command: Sequence[str]
    keys: tuple[str, ...]
    divisible: bool = False
    silence: float = 120.0
    missing: str = ""


@dataclass(frozen=True)
class Part:
    """workers: how many of its jobs run at a time."""

    name: str
    jobs: Sequence[Job]
    workers: int = 1


class Results:
    """The results of a file, by their keys."""

    def __init__(self, record: Record, tell: Callable[[str], None]) -> None:
        self.record, self.tell, self.lock = record, tell, threading.Lock()
        self.faults: dict[str, str] = {}

    def has(self, key: str) -> bool:
        return key in self.record.measurements

    def add(self, line: dict[str, Any]) -> None:
        key = line.pop("key")
        with self.lock:
            if "failed" in line:
                self.record.measurements.pop(key, None)
                self.fail(key, line["failed"], line)
            else:
                self.faults.pop(key, None)
                self.record.content.get("failed", {}).pop(key, None)
                self.record.add(key, line)

    def fail(self, key: str, why: str, figures: dict[str, Any] | None = None) -> None:
        """Note a failure; it is tried again by the next call."""
        self.faults[key] = why
        self.record.content.setdefault("failed", {})[key] = {**(figures or {}), "failed": why}
        self.record.write()
        self.tell(f"  failed: {key}: {why}")


def run(part: Part, results: Results, threads: int, until: float) -> None:
    """Run the jobs of a part that lack results, until a time of time.monotonic."""
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in part.jobs:
        waiting.put(job)

    def work() -> None:
        with suppress(queue.Empty):
            while True:
                complete(waiting.get_nowait(), results, threads, until)

    workers = [threading.Thread(target=work) for _ in range(part.workers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def complete(job: Job, results: Results, threads: int, until: float) -> None:
    """Run a job until each of its keys has a result or a failure."""
    if job.missing:
        return
    left = [key for key in job.keys if not results.has(key)]
    if not job.divisible:
        left = list(job.keys) if left else []
    while left:
        if time.monotonic() >= until:
            for key in left:
                results.fail(key, "the time limit came before it")
            return
        seen, why = attempt(job, left, results, threads, until)
        left = [key for key in left if key not in seen]
        if left and (why or not seen):
            late = time.monotonic() >= until
            for key in left if late or not job.divisible else left[:1]:
                results.fail(key, why or "ended without a result")
            left = [] if late or not job.divisible else left[1:]


def attempt(job: Job, keys: Sequence[str], results: Results, threads: int, until: float) -> tuple[set[str], str]:
    """One process: the keys it told of, and why it did not end well, if so."""
    command = [*job.command, *(keys if job.divisible else ())]
    seen: set[str] = set()
    why = ""
    with tempfile.TemporaryFile("w+") as errors:
        options = {"cwd": ROOT, "env": environment(threads), "stdout": subprocess.PIPE, "stderr": errors, "text": True}
        with subprocess.Popen(command, start_new_session=True, **options) as process:  # type: ignore[call-overload]
            lines: queue.SimpleQueue[str] = queue.SimpleQueue()
            reader = threading.Thread(target=read, args=(process.stdout, lines))
            reader.start()
            while not why and (line := next_line(lines, min(job.silence, until - time.monotonic()))) != END:
                if line is None:
                    why = (
                        "stopped at the time limit" if time.monotonic() >= until else f"no result for {job.silence:g} s"
                    )
                elif line.startswith("{"):
                    result = json.loads(line)
                    seen.add(result["key"])
                    results.add(result)
            if why:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # its compilers, too
            reader.join()
        restart = process.returncode == RESTART and bool(seen)
        if not why and process.returncode and not restart:
            errors.seek(0)
            said = [line.strip() for line in errors if line.strip()] or ["no message"]
            why = f"exit code {process.returncode}: {said[-1][:SHOWN]}"
    return seen, why


def read(stream: Iterable[str], lines: "queue.SimpleQueue[str]") -> None:
    for line in stream:
        lines.put(line)
    lines.put(END)


def next_line(lines: "queue.SimpleQueue[str]", seconds: float) -> str | None:
    """None if no line comes in time."""
    try:
        return lines.get(timeout=max(0.01, seconds))
    except queue.Empty:
        return None

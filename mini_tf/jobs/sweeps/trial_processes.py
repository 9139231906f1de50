"""Train the runs of a sweep, each in a process of its own, several at a time, until a time limit or a stop signal.

A process that is stopped saves first, so its run goes on where it was. One whose launcher is killed notices it, saves
and ends; until then the sweep stays locked, so that no run is started a second time.
"""

import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mini_tf.jobs.sweeps.trials import TrialRun
from mini_tf.parallel import launching
from mini_tf.recipe.sections import Runtime
from mini_tf.system.errors import MinitfError, Unavailable
from mini_tf.system.processes import read_fault
from mini_tf.training.machine.device import available_cores, resolve_setup
from mini_tf.training.signals import StopRequest

POLL = 0.05
STOPPED = {128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)}
"""Exit codes of a run that was stopped after saving."""
_OF_ALL = (2, 5, 9)
"""Exit codes for usage, folders and devices, which are the same for all runs, and end the sweep."""
_OF_DATA = 4
"""That for data, which ends it if no run has ended well."""


def machine_shares(runtime: Runtime, n_runs: int, jobs: int | None) -> tuple[int, int | None]:
    """Processes at a time, and the CPU threads of each; None: as the recipe says.

    jobs: what is asked for; None: one per core, or on a GPU one in all. Raises Unavailable if there is no such device.
    """
    cores, on_cpu = available_cores(), resolve_setup(runtime).device.type == "cpu"
    if jobs is None:
        each = 1 if runtime.threads == "auto" else runtime.threads
        jobs = max(1, min(n_runs, cores // each)) if on_cpu else 1
    return jobs, max(1, cores // jobs) if on_cpu and runtime.threads == "auto" else None


class RunPart(NamedTuple):
    """Training of a run up to `stop_at`, or to its end if None. steps: how many these are, 1 if it is not known."""

    run: TrialRun
    stop_at: int | None
    steps: int


@dataclass
class _Process:
    process: Any
    faults: Path
    started: float


@dataclass
class TrialProcesses:
    """jobs: processes at a time. seconds: time limit. lock: of the sweep, a descriptor.

    step_seconds: of the slowest run so far, with its start.
    """

    jobs: int
    seconds: float
    stop: StopRequest
    lock: int
    step_seconds: float = 0.0
    ends: float = field(init=False)

    def __post_init__(self) -> None:
        self.ends = time.monotonic() + self.seconds

    def train(self, parts: Sequence[RunPart], report: Callable[[TrialRun, float], None]) -> bool:
        """Whether all came to their ends, or failed. A failure is the run's `fault` if its folder does not say so.

        None is begun that, by the slowest one so far, would not end before the time limit. report: called with each
        run that ended and its seconds. Raises the error of a run that all others would have, too.
        """
        waiting, running, complete, stopping = [*parts], list[tuple[RunPart, _Process]](), True, False
        with tempfile.TemporaryDirectory(prefix="minitf") as name:
            try:
                while waiting or running:
                    fitting = [part for part in waiting if self._fits(part)]
                    if not fitting and not running:
                        return False
                    for part in fitting[: self.jobs - len(running)]:
                        waiting.remove(part)
                        running.append((part, self._start(part, Path(name))))
                    time.sleep(POLL)
                    if not stopping and (self.stop or time.monotonic() > self.ends):
                        stopping = True
                        _signal(running, signal.SIGTERM)
                    for part, process in [pair for pair in running if pair[1].process.poll() is not None]:
                        running.remove((part, process))
                        complete &= self._end(part, process, report)
                return complete
            finally:
                _signal(running, signal.SIGKILL)
                for _, process in running:
                    process.process.wait()

    def _start(self, part: RunPart, folder: Path) -> _Process:
        run, faults = part.run, folder / part.run.folder.name
        faults.mkdir()
        until = [] if part.stop_at is None else ["--stop-at", str(part.stop_at)]
        arguments = ["pretrain", *run.arguments, "-d", str(run.folder), "-q", *until]
        return _Process(launching.start(arguments, faults, self.lock), faults, time.monotonic())

    def _fits(self, part: RunPart) -> bool:
        return not self.stop and time.monotonic() + self.step_seconds * part.steps <= self.ends

    def _end(self, part: RunPart, ended: _Process, report: Callable[[TrialRun, float], None]) -> bool:
        code, run = ended.process.returncode, part.run
        if code in STOPPED or code == -signal.SIGTERM:  # the latter before it could catch signals
            return False
        fault: MinitfError | None = read_fault(ended.faults, 0)
        if code < 0:
            fault = Unavailable(f"killed by signal {-code}")
        elif fault is not None and (code in _OF_ALL or (code == _OF_DATA and not self.step_seconds)):
            raise fault
        seconds = time.monotonic() - ended.started
        if code == 0:
            self.step_seconds = max(self.step_seconds, seconds / part.steps)
        elif run.error is None:
            run.fault = fault or MinitfError(f"exit code {code}")
        report(run, seconds)
        return True


def _signal(running: Sequence[tuple[RunPart, _Process]], number: int) -> None:
    for _, process in running:
        process.process.send_signal(number)

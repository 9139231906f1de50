"""Trials of a sweep: settings, one run folder per seed, and the processes that train them, several at a time.

Nothing is kept but the run folders. A process that is stopped saves first, so its run goes on where it was. One whose
launcher is killed notices it, saves and ends; until then the sweep stays locked, so that no run is started a second
time.
"""

import math
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mini_tf.jobs.sweeps.space import Chosen
from mini_tf.parallel import launching
from mini_tf.recipe.metrics import BestMetric
from mini_tf.recipe.sections import Runtime
from mini_tf.run import manifest
from mini_tf.run.finding import is_run
from mini_tf.run.metric_files import curve
from mini_tf.scores.intervals import Mean, mean_interval
from mini_tf.system.errors import MinitfError, Unavailable
from mini_tf.system.processes import read_fault
from mini_tf.training.machine.device import available_cores, resolve_setup
from mini_tf.training.signals import StopRequest

FAILED = math.inf
"""Score of a run that failed."""


@dataclass
class TrialRun:
    """A run of a trial. title: its folder and settings. arguments: of `minitf pretrain`.

    fault: why it failed without a run folder that says so.
    """

    folder: Path
    title: str
    arguments: Sequence[str]
    fault: MinitfError | None = None

    @property
    def record(self) -> manifest.Manifest | None:
        """Its run.json; None before it has one."""
        return manifest.read(self.folder) if is_run(self.folder) else None

    @property
    def error(self) -> str | None:
        """Why it failed; None if it did not."""
        if (record := self.record) is not None and record.state in ("failed", "diverged"):
            return f"{record.error}"
        return None if self.fault is None else self.fault.message

    def score(self, metric: BestMetric, step: int | None) -> float | None:
        """At the evaluation after `step`, or at the end; None if it has not come so far.

        An evaluation counts also if the run failed later, so that it is the same whenever this is called. A run that
        ended before `step` has the score of its last evaluation.
        """
        evaluated = curve(self.folder / "metrics.jsonl", f"val.{metric.name}") if step is not None else []
        value = dict(evaluated).get(step or 0)
        if value is None and self.error is not None:
            return FAILED
        if value is None and (record := self.record) is not None and record.state == "done":
            value = evaluated[-1][1] if evaluated else record.metrics.get(f"val.{metric.name}")
            return FAILED if value is None else metric.sign * value
        return None if value is None else metric.sign * value


@dataclass
class Trial:
    """Settings that are tried. step: where its runs were compared last, None at their end; scores: there, by run.

    stopped: others were better there.
    """

    number: int
    settings: Chosen
    runs: Sequence[TrialRun]
    step: int | None = 0
    scores: Sequence[float] = ()
    stopped: bool = False

    @property
    def name(self) -> str:
        return f"trial-{self.number:03d}"

    @property
    def overrides(self) -> list[str]:
        return [f"{key}={value}" for key, value in self.settings.items()]

    @property
    def score(self) -> float:
        """The mean over the seeds, the lower the better; infinite if a run failed or was not evaluated."""
        return sum(self.scores) / len(self.scores) if self.scores else FAILED

    @property
    def errors(self) -> list[str]:
        return [f"{run.folder.name}: {run.error}" for run in self.runs if run.error is not None]

    @property
    def rank(self) -> tuple[bool, float, float]:
        """Sorts trials: those whose runs came furthest first, then by score; failed ones last."""
        return self.score == FAILED, -math.inf if self.step is None else -self.step, self.score

    def compare_at(self, metric: BestMetric, step: int | None) -> bool:
        """Read the scores at a step; False if a run has not come so far."""
        scores = [run.score(metric, step) for run in self.runs]
        if None in scores:
            return False
        self.step, self.scores = step, [score for score in scores if score is not None]
        return True

    def mean(self, metric: BestMetric) -> Mean | None:
        """The metric over the seeds with its interval; None without finite scores."""
        values = [metric.value(score) for score in self.scores]
        return mean_interval(values) if values and self.score < FAILED else None

    @property
    def state(self) -> str:
        if self.scores and self.score == FAILED:
            return "failed"
        return "done" if self.step is None else f"stopped at step {self.step}" if self.stopped else "unfinished"

    def to_json(self, metric: BestMetric) -> dict[str, Any]:
        mean = self.mean(metric)
        values = [None if score == FAILED else metric.value(score) for score in self.scores]
        return {
            "name": self.name,
            "settings": {**self.settings},
            "state": self.state,
            "mean": None if mean is None else mean.mean,
            "interval": None if mean is None else mean.half,
            "runs": [str(run.folder) for run in self.runs],
            "values": values,
            "errors": self.errors,
        }


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


class _Running(NamedTuple):
    """The process of a part. faults: the folder that gets its error."""

    part: RunPart
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
        waiting, running, complete, stopping = [*parts], list[_Running](), True, False
        with tempfile.TemporaryDirectory(prefix="minitf") as name:
            try:
                while waiting or running:
                    fitting = [part for part in waiting if self._fits(part)]
                    if not fitting and not running:
                        return False
                    for part in fitting[: self.jobs - len(running)]:
                        waiting.remove(part)
                        running.append(self._start(part, Path(name)))
                    time.sleep(POLL)
                    if not stopping and (self.stop or time.monotonic() > self.ends):
                        stopping = True
                        _signal(running, signal.SIGTERM)
                    for ended in [child for child in running if child.process.poll() is not None]:
                        running.remove(ended)
                        complete &= self._end(ended, report)
                return complete
            finally:
                _signal(running, signal.SIGKILL)
                for child in running:
                    child.process.wait()

    def _start(self, part: RunPart, folder: Path) -> _Running:
        run, faults = part.run, folder / part.run.folder.name
        faults.mkdir()
        until = [] if part.stop_at is None else ["--stop-at", str(part.stop_at)]
        arguments = ["pretrain", *run.arguments, "-d", str(run.folder), "-q", *until]
        return _Running(part, launching.start(arguments, faults, self.lock), faults, time.monotonic())

    def _fits(self, part: RunPart) -> bool:
        return not self.stop and time.monotonic() + self.step_seconds * part.steps <= self.ends

    def _end(self, ended: _Running, report: Callable[[TrialRun, float], None]) -> bool:
        code, run = ended.process.returncode, ended.part.run
        if code in STOPPED or code == -signal.SIGTERM:  # the latter before it could catch signals
            return False
        fault: MinitfError | None = read_fault(ended.faults, 0)
        if code < 0:
            fault = Unavailable(f"killed by signal {-code}")
        elif fault is not None and (code in _OF_ALL or (code == _OF_DATA and not self.step_seconds)):
            raise fault
        seconds = time.monotonic() - ended.started
        if code == 0:
            self.step_seconds = max(self.step_seconds, seconds / ended.part.steps)
        elif run.error is None:
            run.fault = fault or MinitfError(f"exit code {code}")
        report(run, seconds)
        return True


def _signal(running: Sequence[_Running], number: int) -> None:
    for child in running:
        child.process.send_signal(number)

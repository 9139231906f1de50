"""Trials of a sweep: settings, one run folder per seed, and what the folders tell about them. Nothing else is kept."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mini_tf.jobs.sweeps.space import Chosen
from mini_tf.recipe.metrics import BestMetric
from mini_tf.run import manifest
from mini_tf.run.finding import is_run
from mini_tf.run.metric_files import curve
from mini_tf.scores.intervals import Mean, mean_interval
from mini_tf.system.errors import MinitfError

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
    def step(self) -> int:
        return manifest.read(self.folder).step if is_run(self.folder) else 0

    @property
    def error(self) -> str | None:
        """Why it failed; None if it did not."""
        record = manifest.read(self.folder) if is_run(self.folder) else None
        failed = record is not None and record.state in ("failed", "diverged")
        if failed and record is not None:
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
        if value is None and is_run(self.folder) and (record := manifest.read(self.folder)).state == "done":
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

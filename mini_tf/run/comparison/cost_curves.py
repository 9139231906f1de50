"""Validation metrics of a run against its cost: the evaluations during training, as recorded in metrics.jsonl.

FLOPs are steps times `flops_per_step` of run.json: training steps only, evaluations cost nothing. Time is that of
timing.jsonl: training with its evaluations and checkpoints, without the start of the program.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from mini_tf.run import finding, manifest
from mini_tf.run.manifest import Manifest
from mini_tf.run.metric_files import curve, read_lines

Axis = Literal["flops", "time", "steps"]
Points = Sequence[tuple[float, float]]
"""(cost, value), by ascending cost."""


@dataclass(frozen=True)
class RunCurves:
    """A run and its evaluations."""

    name: str
    folder: Path
    record: Manifest
    _points: dict[tuple[Axis, str], Points] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, name: str = "") -> "RunCurves":
        """RunFault if run.json is missing or damaged."""
        return cls(name or folder.name, folder, manifest.read(folder))

    @property
    def seed(self) -> int:
        return self.record.seed

    @property
    def fold(self) -> int | None:
        """The fold of a cross-validation that is its validation data."""
        split = self.record.decides.get("data.split")
        return split.get("fold") if isinstance(split, dict) else None

    @cached_property
    def root(self) -> "RunCurves":
        """The set of runs that it is part of, with seeds of folds the outer one; a single run itself."""
        parent = self.folder.parent
        if self.folder in finding.member_folders(parent) and finding.is_run(parent):
            return RunCurves.read(parent).root
        return self

    @property
    def hashes(self) -> Mapping[str, str]:
        """Hashes that are equal for all runs of a set, although folds have data of their own."""
        return self.root.record.hashes

    @cached_property
    def _seconds(self) -> Mapping[int, float]:
        return dict(curve(self.folder / "timing.jsonl", "seconds"))

    @cached_property
    def metrics(self) -> Sequence[str]:
        """Names of the metrics of its evaluations: val.loss, ..."""
        reports = read_lines(self.folder / "metrics.jsonl")
        names = dict.fromkeys(key for report in reports if "step" in report for key in report if key.startswith("val."))
        return [name for name in names if self.points("steps", name)]

    def cost(self, axis: Axis, step: int) -> float | None:
        """FLOPs, seconds or steps until the end of `step`; None if they are not recorded."""
        if axis == "flops":
            flops = self.record.flops_per_step
            return None if flops is None else float(flops) * step
        return self._seconds.get(step) if axis == "time" else float(step)

    def total(self, axis: Axis) -> float | None:
        """The cost until the last evaluation; None without evaluations or records of the cost."""
        points = self.points(axis, "val.loss")
        return points[-1][0] if points else None

    def points(self, axis: Axis, metric: str) -> Points:
        """A metric at each evaluation, or another value of metrics.jsonl; empty if the cost of one is not recorded."""
        if (axis, metric) not in self._points:
            values = curve(self.folder / "metrics.jsonl", metric)
            costs = [(cost, value) for step, value in values if (cost := self.cost(axis, step)) is not None]
            self._points[axis, metric] = costs if len(costs) == len(values) else []
        return self._points[axis, metric]

    def machine(self) -> dict[str, Any]:
        """What decides the speed of a step beside the recipe."""
        auto, versions = self.record.auto, self.record.versions
        hardware = {"host": self.record.host, "processor": versions.get("processor"), "torch": versions.get("torch")}
        return hardware | {name: auto.get(name) for name in ("device", "threads", "precision", "compile")}


def all_known(values: Iterable[float | None]) -> list[float] | None:
    """The values; None if one of them is not known."""
    known = list(values)
    return None if None in known else [value for value in known if value is not None]


def value_at(points: Points, budget: float) -> float | None:
    """The value at a cost, interpolated linearly between the evaluations around it; None outside of the data."""
    if not points or not points[0][0] <= budget <= points[-1][0]:
        return None
    after = next(n for n, (cost, _) in enumerate(points) if cost >= budget)
    if points[after][0] == budget:
        return points[after][1]
    (low, before), (high, value) = points[after - 1], points[after]
    return before + (value - before) * (budget - low) / (high - low)


def cost_to_reach(points: Points, target: float, lower_is_better: bool) -> float | None:
    """The lowest cost at which the value is as good as `target`, interpolated as by `value_at`; None if it never is."""
    sign = 1.0 if lower_is_better else -1.0
    previous: tuple[float, float] | None = None
    for cost, value in points:
        if sign * value <= sign * target:
            if previous is None or value == target:
                return cost
            share = (target - previous[1]) / (value - previous[1])
            return previous[0] + share * (cost - previous[0])
        previous = (cost, value)
    return None

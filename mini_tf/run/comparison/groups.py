"""Groups of runs that differ only in seed and fold: metrics at equal cost, cost of equal metrics, and learning curves.

A learning curve is a metric of runs that differ in the number of training examples (`data.max_train_samples`).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from mini_tf.recipe.metrics import is_lower_better
from mini_tf.run import finding
from mini_tf.run.comparison.cost_curves import Axis, RunCurves, all_known, cost_to_reach, value_at
from mini_tf.run.manifest import Manifest
from mini_tf.scores.intervals import Mean, difference_interval, mean_interval

SEEDS = ("train.seed", "train.seeds")
SHARES = (0.25, 0.5, 1.0)
"""Shares of the largest common cost at which runs are compared."""
OF_UNIT = ("val.loss", "val.perplexity", "val.accuracy", "train.loss")
"""Metrics that are not comparable between units of the loss or tokenizers; with their parts and statistics."""
OF_OBJECTIVE = (*OF_UNIT, "val.bits_per_byte")
"""Metrics that are not comparable between objectives, which predict other tokens, or from another context."""


@dataclass(frozen=True)
class RunGroup:
    """Runs of one recipe with different seeds, or different folds of a cross-validation."""

    name: str
    members: Sequence[RunCurves]

    @property
    def seeds(self) -> list[int]:
        return [member.seed for member in self.members]

    @property
    def keys(self) -> list[tuple[int | None, int]]:
        """Fold and seed of each run, by which runs of two groups are paired."""
        return [(member.fold, member.seed) for member in self.members]

    def total(self, axis: Axis) -> float | None:
        totals = all_known(member.total(axis) for member in self.members)
        return None if totals is None else sum(totals) / len(totals)


class Comparison(NamedTuple):
    """A metric of each group at one cost. difference: of two groups, second minus first; paired: by seed and fold.

    A mean is None if the metric of a member is not known at this cost.
    """

    metric: str
    share: float
    budget: float
    means: Sequence[Mean | None]
    difference: Mean | None
    paired: bool


class Reached(NamedTuple):
    """The mean cost at which each group reaches `value` of a metric; None: a run of it does not.

    at_first: a run of the group reaches it by its first evaluation, so the cost is an upper bound.
    """

    metric: str
    value: float
    costs: Sequence[Mean | None]
    at_first: Sequence[bool]

    @property
    def factors(self) -> list[float | None]:
        """How many times cheaper each group is than the most expensive one."""
        known = [cost.mean for cost in self.costs if cost is not None]
        highest = max(known, default=0.0)
        return [None if cost is None or not cost.mean else highest / cost.mean for cost in self.costs]


def recipe_key(record: Manifest, without: Iterable[str] = SEEDS) -> str:
    """Equal for runs that differ only in the seed or the fold; "" if run.json does not tell."""
    decides = {key: value for key, value in record.decides.items() if key not in without}
    if isinstance(split := decides.get("data.split"), dict):
        decides["data.split"] = split | {"fold": None}
    return json.dumps([decides, record.extensions], sort_keys=True, default=str) if decides else ""


def with_members(runs: Iterable[RunCurves]) -> list[RunCurves]:
    """The runs; a set of runs is replaced by its runs."""
    curves = list[RunCurves]()
    for run in runs:
        members = [RunCurves.read(folder, f"{run.name}/{folder.name}") for folder in finding.member_folders(run.folder)]
        curves += with_members(members) or [run]
    return curves


def grouped(runs: Sequence[RunCurves]) -> list[RunGroup]:
    """Groups in the order of their first runs; two runs of one seed and fold are not in one group."""
    groups: list[tuple[str, list[RunCurves]]] = []
    for run in with_members(runs):
        key = recipe_key(run.record)
        full = key + json.dumps({**run.hashes}, sort_keys=True)
        same = [members for other, members in groups if key and other == full]
        fitting = (
            members
            for members in same
            if (run.fold, run.seed) not in [(member.fold, member.seed) for member in members]
        )
        if (members := next(fitting, None)) is not None:
            members.append(run)
        else:
            groups.append((full, [run]))
    return [RunGroup(_name(members), members) for _, members in groups]


def _name(members: Sequence[RunCurves]) -> str:
    first, roots = members[0], {member.root.folder for member in members}
    if len(members) == 1:
        return first.name
    inside = f"/{first.folder.relative_to(first.root.folder).as_posix()}"
    name = (
        first.name
        if len(roots) > 1
        else first.name.removesuffix(inside)
        if first.name.endswith(inside)
        else first.root.name
    )
    sizes = ((len({member.fold for member in members}), "folds"), (len({member.seed for member in members}), "seeds"))
    return f"{name} ({', '.join(f'{n} {unit}' for n, unit in sizes if n > 1)})"


def incomparable(groups: Sequence[RunGroup]) -> Sequence[str]:
    """Metrics that cannot be compared between these runs: none, OF_UNIT or OF_OBJECTIVE."""
    records = [run.record for group in groups for run in group.members]
    if len({record.decides.get("objective.kind") for record in records}) > 1:
        return OF_OBJECTIVE
    return OF_UNIT if len({_unit(run) for group in groups for run in group.members}) > 1 else ()


def _unit(run: RunCurves) -> tuple[str, str]:
    """The unit of the loss, with the tokenizer's hash if it is per token."""
    unit = run.record.loss_unit
    return unit, run.hashes.get("tokenizer", "") if "per token" in unit else ""


def is_among(metric: str, names: Sequence[str]) -> bool:
    """Whether a metric, a part of it (val.loss.generator) or a statistic of it (val.loss.mean) is among `names`."""
    return any(metric == name or metric.startswith(f"{name}.") for name in names)


def common_metrics(groups: Sequence[RunGroup], excluded: Sequence[str]) -> list[str]:
    """Metrics of all evaluations of all runs, without those that cannot be compared."""
    runs = [run for group in groups for run in group.members]
    common = [name for name in runs[0].metrics if all(name in run.metrics for run in runs)]
    return [name for name in common if name != "val.perplexity" and not is_among(name, excluded)]


def common_budget(groups: Sequence[RunGroup], axis: Axis) -> float | None:
    """The largest cost that every run has reached at its last evaluation; None if one is not recorded."""
    totals = all_known(run.total(axis) for group in groups for run in group.members)
    return min(totals) if totals else None


def at_equal_cost(groups: Sequence[RunGroup], axis: Axis, metrics: Sequence[str]) -> list[Comparison]:
    """The metrics at SHARES of the common budget; empty if a cost is not recorded."""
    budget, comparisons = common_budget(groups, axis) or 0.0, list[Comparison]()
    for share in SHARES if budget else ():
        for metric in metrics:
            values = [_values(group, axis, metric, share * budget) for group in groups]
            means = [None if group_values is None else mean_interval(group_values) for group_values in values]
            difference, paired = _difference(groups, values)
            if any(mean is not None for mean in means):
                comparisons.append(Comparison(metric, share, share * budget, means, difference, paired))
    return comparisons


def to_reach(groups: Sequence[RunGroup], axis: Axis, metric: str, value: float | None = None) -> Reached | None:
    """The cost of a value of the metric; default: the worst value at the end of a run. None if it is not measured."""
    curves = [[run.points(axis, metric) for run in group.members] for group in groups]
    if not all(points for group_curves in curves for points in group_curves):
        return None
    lower = is_lower_better(metric, groups[0].members[0].record.lower_is_better)
    ends = [points[-1][1] for group_curves in curves for points in group_curves]
    target = value if value is not None else max(ends) if lower else min(ends)
    costs = [[cost_to_reach(points, target, lower) for points in group_curves] for group_curves in curves]
    known = [all_known(group_costs) for group_costs in costs]
    means = [None if group_costs is None else mean_interval(group_costs) for group_costs in known]
    at_first = [
        any(cost == points[0][0] for cost, points in zip(*pair, strict=True))
        for pair in zip(costs, curves, strict=True)
    ]
    return Reached(metric, target, means, at_first)


def _values(group: RunGroup, axis: Axis, metric: str, budget: float) -> list[float] | None:
    return all_known(value_at(run.points(axis, metric), budget) for run in group.members)


def _difference(groups: Sequence[RunGroup], values: Sequence[Sequence[float] | None]) -> tuple[Mean | None, bool]:
    """Of two groups; paired if they have the same seeds and folds, several of them."""
    if len(groups) != 2 or values[0] is None or values[1] is None:
        return None, False
    keys = [group.keys for group in groups]
    if len(keys[0]) > 1 and {*keys[0]} == {*keys[1]}:
        first, second = (
            dict(zip(group_keys, group_values or (), strict=True))
            for group_keys, group_values in zip(keys, values, strict=True)
        )
        return mean_interval([second[key] - first[key] for key in first]), True
    return difference_interval(values[0], values[1]), False


KEY = "data.max_train_samples"


@dataclass(frozen=True)
class LearningCurve:
    """The final metric of runs of one recipe, by ascending number of training examples. values: of all its runs."""

    name: str
    metric: str
    values: Sequence[tuple[int, Sequence[float]]]

    @cached_property
    def means(self) -> dict[int, Mean]:
        return {n: mean_interval(values) for n, values in self.values}


def learning_curves(groups: Sequence[RunGroup]) -> list[LearningCurve]:
    """One curve per recipe that was trained on several numbers of examples; runs without their metric are left out.

    The metric is the main one of the task if all runs have it, else the loss. On all validation data, which are the
    same for every number of examples.
    """
    lines: dict[str, list[RunCurves]] = {}
    for run in (member for group in groups for member in group.members):
        if run.record.train_examples and run.record.state == "done" and (key := recipe_key(run.record, (*SEEDS, KEY))):
            lines.setdefault(key + json.dumps(run.hashes.get("init")), []).append(run)
    several = [runs for runs in lines.values() if len({_size(run) for run in runs}) > 1]
    all_runs = [run for runs in several for run in runs]
    preferred = [*(all_runs[0].record.figures if all_runs else ()), "val.loss"]
    metric = next(
        (name for name in preferred if all(run.record.metrics.get(name) is not None for run in all_runs)), None
    )
    if not all_runs or metric is None:
        return []
    return [
        LearningCurve(name, metric, _values_by_size(runs, metric))
        for name, runs in zip(_names(several), several, strict=True)
    ]


def _size(run: RunCurves) -> int:
    """The number of training examples; of a fold, that of the first fold, since folds differ by one."""
    return run.root.record.train_examples or run.record.train_examples or 0


def _values_by_size(runs: Sequence[RunCurves], metric: str) -> list[tuple[int, Sequence[float]]]:
    sizes = sorted({_size(run) for run in runs})
    return [(n, [float(run.record.metrics[metric] or 0.0) for run in runs if _size(run) == n]) for n in sizes]


def _names(several: Sequence[Sequence[RunCurves]]) -> list[str]:
    """The recipes, with the keys in which those of one name differ."""
    firsts = [runs[0].record for runs in several]
    keys = sorted({key for first in firsts for key in first.decides if key not in (*SEEDS, KEY)})
    differing = [key for key in keys if len({json.dumps(first.decides.get(key)) for first in firsts}) > 1]
    names = []
    for first in firsts:
        same = [other for other in firsts if other.recipe == first.recipe]
        settings = [
            f"{key}={first.decides.get(key)}"
            for key in differing
            if any(other.decides.get(key) != first.decides.get(key) for other in same)
        ]
        names.append(" ".join([first.recipe, *settings[:2]]))
    return names

"""Learning curves: a metric of runs that differ in the number of training examples (`data.max_train_samples`)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from mini_tf.run.comparison.cost_curves import RunCurves
from mini_tf.run.comparison.groups import SEEDS, RunGroup, recipe_key
from mini_tf.scores.intervals import Mean, mean_interval

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
        LearningCurve(name, metric, _values(runs, metric)) for name, runs in zip(_names(several), several, strict=True)
    ]


def _size(run: RunCurves) -> int:
    """The number of training examples; of a fold, that of the first fold, since folds differ by one."""
    return run.root.record.train_examples or run.record.train_examples or 0


def _values(runs: Sequence[RunCurves], metric: str) -> list[tuple[int, Sequence[float]]]:
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

"""Tables of `runs compare` at equal cost: metrics, the cost of equal metrics, and runs initialized from the runs."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.run.comparison.cost_curves import Axis, RunCurves
    from mini_tf.run.comparison.downstream import DownstreamTask
    from mini_tf.run.comparison.groups import Comparison, Reached
    from mini_tf.scores.intervals import Mean

NAMES: "dict[Axis, str]" = {"flops": "FLOPs", "time": "training time", "steps": "steps"}
SHARES = {0.25: "1/4", 0.5: "1/2"}
Table = tuple[list[str], list[list[str]]]


class EqualCost:
    """The comparison of runs at equal cost; axis: only this one. incomparable: metrics that cannot be compared."""

    def __init__(self, folders: Sequence[Path], axis: "Axis | None", reach: str | None) -> None:
        from mini_tf.run.comparison.cost_curves import RunCurves
        from mini_tf.run.comparison.downstream import downstream_tasks
        from mini_tf.run.comparison.groups import at_equal_cost, common_metrics, grouped, incomparable

        self.axes: list[Axis] = ["flops", "time"] if axis is None else [axis]
        self.groups = grouped([RunCurves.read(folder, display_name(folder, folders)) for folder in folders])
        self.incomparable = incomparable(self.groups)
        self.metrics = common_metrics(self.groups, self.incomparable)
        self.shown = [name for name in self.metrics if name != "val.bits_per_byte" or "val.loss" not in self.metrics]
        self.comparable = len(self.groups) > 1 or len(self.groups[0].members) > 1
        self.equal = (
            {axis: at_equal_cost(self.groups, axis, self.metrics) for axis in self.axes} if self.comparable else {}
        )
        self.reached = self._reached(reach) if self.comparable else {}
        self.tasks = downstream_tasks(self.groups, dict.fromkeys(run.root.folder.parent for run in self.runs))

    @property
    def runs(self) -> "list[RunCurves]":
        return [run for group in self.groups for run in group.members]

    def tables(self) -> list[Table]:
        names = [group.name for group in self.groups]
        tables = [self._equal_table(axis, rows) for axis, rows in self.equal.items() if rows]
        by_axis = {axis: reached for axis, reached in self.reached.items() if reached is not None}
        if len(names) > 1 and by_axis:
            first = next(iter(by_axis.values()))
            header = [f"cost to reach {first.metric} {first.value:.4f}", *names]
            tables.append((header, [row for axis, reached in by_axis.items() for row in _reached_rows(axis, reached)]))
        if self.tasks:
            tables.append(self._downstream_table())
        return tables

    def notes(self) -> list[str]:
        """Notes on the tables: missing figures, interpolation, intervals, different machines."""
        notes = [*self._missing_figures()] if self.comparable else []
        compared = [row for rows in self.equal.values() for row in rows]
        if compared:
            over = "seeds and folds" if any(run.fold is not None for run in self.runs) else "seeds"
            several = any(len(group.members) > 1 for group in self.groups)
            seeds = f"; ±: 95 % interval over {over} (Student's t)" if several else ""
            notes.append(
                f"equal cost: of training, by evaluations during training and linear interpolation between them{seeds}"
            )
            if any(reached is not None and any(reached.at_first) for reached in self.reached.values()):
                notes.append("≤: reached by the first evaluation; eval.every_steps sets when that is")
            if any(row.difference is not None and row.difference.half is not None for row in compared):
                how = "paired by seed" if any(row.paired for row in compared) else "of Welch"
                notes.append(f"difference: second minus first, 95 % interval {how}")
        if self.equal.get("time") and (differing := self._differing_machines()):
            notes.append(f"training times are not comparable, as runs differ in {differing}")
        return notes

    def _missing_figures(self) -> Iterator[str]:
        if not self.metrics:
            missing = ", ".join(run.name for run in self.runs if not run.metrics)
            why = (
                f"{missing} has no evaluation" if missing else "the evaluations of these runs have no comparable metric"
            )
            yield f"no comparison at equal cost: {why}; compare runs initialized from them (model.init_from)"
        unknown = ", ".join(run.name for run in self.runs if run.cost("flops", 1) is None)
        if unknown and "flops" in self.axes:
            why = "its steps differ, as in two-stage training"
            yield f"no comparison at equal FLOPs: run.json of {unknown} has no flops_per_step ({why})"
        untimed = ", ".join(run.name for run in self.runs if not run.points("time", "val.loss"))
        if self.metrics and untimed and "time" in self.axes:
            yield f"no comparison at equal time: timing.jsonl of {untimed} is incomplete"

    def to_json(self) -> dict[str, Any]:
        groups = [
            {
                "name": group.name,
                "seeds": group.seeds,
                "folds": [run.fold for run in group.members],
                "folders": [str(run.folder) for run in group.members],
                "flops_per_step": [run.record.flops_per_step for run in group.members],
                "totals": {axis: group.total(axis) for axis in NAMES},
            }
            for group in self.groups
        ]
        equal = {axis: [_comparison_json(row) for row in rows] for axis, rows in self.equal.items()}
        reach = {
            axis: reached._asdict() | {"costs": list(map(_mean_json, reached.costs)), "factors": reached.factors}
            for axis, reached in self.reached.items()
            if reached is not None
        }
        downstream = [self._task_json(task) for task in self.tasks]
        return {"groups": groups, "equal": equal, "reach": reach, "downstream": downstream}

    def _reached(self, reach: str | None) -> "dict[Axis, Reached | None]":
        from mini_tf.run.comparison.groups import to_reach

        name, _, number = (reach or "").partition("=")
        if reach is not None and name not in self.metrics:
            known = ", ".join(self.metrics) or "none"
            raise UsageFault(f"--reach {reach}: no metric that all runs have; there are: {known}")
        try:
            value = float(number) if number else None
        except ValueError:
            value = math.nan
        if value is not None and not math.isfinite(value):
            raise UsageFault(f"--reach {reach}: {number!r} is not a number", hint=f"example: --reach {name}=1.9")
        preferred = (*self.runs[0].record.figures, "val.loss", "val.bits_per_byte")
        metric = name or next((metric for metric in preferred if metric in self.metrics), None)
        return {} if metric is None else {axis: to_reach(self.groups, axis, metric, value) for axis in self.axes}

    def _equal_table(self, axis: "Axis", rows: "Sequence[Comparison]") -> Table:
        difference = ["difference"] if len(self.groups) == 2 else []
        header = [f"at equal {NAMES[axis]}", *(group.name for group in self.groups), *difference]
        totals = [_cost(axis, group.total(axis)) for group in self.groups]
        lines = [["until the last evaluation", *totals, *("" for _ in difference)]]
        for row in rows:
            if row.metric in self.shown:
                share = f" ({SHARES[row.share]})" if row.share in SHARES else ""
                cells = [f"{_cost(axis, row.budget)}{share} {row.metric}", *map(mean_and_half, row.means)]
                lines.append([*cells, *(mean_and_half(row.difference, sign="+") for _ in difference)])
        return header, lines

    def _downstream_table(self) -> Table:
        rows = []
        for axis in self.axes:
            rows.append([f"pretraining {NAMES[axis]}", *(_cost(axis, group.total(axis)) for group in self.groups)])
        for task in self.tasks:
            rows.append([f"{task.name} {task.metric}", *map(mean_and_half, task.means)])
            rows.append(["  runs", *(str(len(runs)) if runs else "" for runs in task.runs)])
            rows += [[f"  own {NAMES[axis]}", *(_cost(axis, cost) for cost in task.costs(axis))] for axis in self.axes]
        return ["runs initialized from these", *(group.name for group in self.groups)], rows

    def _task_json(self, task: "DownstreamTask") -> dict[str, Any]:
        runs = [
            [
                {
                    "folder": str(finetuned.run.folder),
                    "seed": finetuned.run.seed,
                    "metrics": finetuned.run.record.metrics,
                    "chain": [str(run.folder) for run in finetuned.chain],
                    "costs": {axis: finetuned.cost(axis) for axis in NAMES},
                }
                for finetuned in finetuned_runs
            ]
            for finetuned_runs in task.runs
        ]
        return {"name": task.name, "metric": task.metric, "means": list(map(_mean_json, task.means)), "runs": runs}

    def _differing_machines(self) -> str:
        machines = [run.machine() for run in self.runs]
        return ", ".join(key for key in machines[0] if any(other[key] != machines[0][key] for other in machines))


def display_name(folder: Path, folders: Sequence[Path]) -> str:
    """The name of a run, or its folder where names are equal."""
    return str(folder) if [other.name for other in folders].count(folder.name) > 1 else folder.name


def _reached_rows(axis: "Axis", reached: "Reached") -> list[list[str]]:
    costs = [
        "not reached" if cost is None else f"{'≤ ' if at_first else ''}{_cost(axis, cost.mean, cost.half)}"
        for cost, at_first in zip(reached.costs, reached.at_first, strict=True)
    ]
    factors = ["" if factor is None else f"{factor:.2f}" for factor in reached.factors]
    return [[NAMES[axis], *costs], ["  times cheaper", *factors]]


def mean_and_half(mean: "Mean | None", sign: str = "") -> str:
    if mean is None:
        return ""
    return f"{mean.mean:{sign}.4f}" + ("" if mean.half is None else f" ± {mean.half:.4f}")


def _cost(axis: "Axis", cost: float | None, half: float | None = None) -> str:
    if cost is None:
        return ""
    form = {"flops": ".3g", "time": ",.1f" if cost >= 100 else ".3g", "steps": ",.0f"}[axis]
    return f"{cost:{form}}" + ("" if half is None else f" ± {half:{form}}") + (" s" if axis == "time" else "")


def _mean_json(mean: "Mean | None") -> dict[str, Any] | None:
    return None if mean is None else mean._asdict()


def _comparison_json(row: "Comparison") -> dict[str, Any]:
    means = {"means": list(map(_mean_json, row.means)), "difference": _mean_json(row.difference)}
    return {"metric": row.metric, "share": row.share, "budget": row.budget, **means, "paired": row.paired}

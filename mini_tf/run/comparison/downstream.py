"""Runs that were initialized from compared runs (`model.init_from`): their metrics, and what they cost in addition.

A run is recognized by the hash of the weights that it was initialized from, which run.json records, so a folder may
have been renamed. A run that was initialized from such a run counts too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mini_tf.run import finding
from mini_tf.run.comparison.cost_curves import Axis, RunCurves, all_known
from mini_tf.run.comparison.groups import SEEDS, RunGroup, recipe_key, with_members
from mini_tf.scores.intervals import Mean, mean_interval
from mini_tf.system.errors import RunFault


@dataclass(frozen=True)
class DownstreamRun:
    """A finished run that was initialized from a run of a compared group, by way of the other runs of `chain`.

    chain: from the first run after pretraining to this one.
    """

    chain: Sequence[RunCurves]

    @property
    def run(self) -> RunCurves:
        return self.chain[-1]

    @property
    def metric(self) -> str | None:
        """The metric that ranks its kind of runs."""
        metrics = self.run.record.metrics
        return next((name for name in [*self.run.record.figures, "val.loss"] if metrics.get(name) is not None), None)

    def cost(self, axis: Axis) -> float | None:
        """The cost of its own training and that of the runs between, without pretraining."""
        totals = all_known(run.total(axis) for run in self.chain)
        return None if totals is None else sum(totals)


@dataclass(frozen=True)
class DownstreamTask:
    """A recipe that was trained from runs of compared groups. runs: of each group."""

    name: str
    metric: str
    runs: Sequence[Sequence[DownstreamRun]]

    @property
    def means(self) -> list[Mean | None]:
        """The metric of each group, over all seeds of both trainings."""
        return [
            mean_interval([float(chain.run.record.metrics[self.metric] or 0.0) for chain in runs]) if runs else None
            for runs in self.runs
        ]

    def costs(self, axis: Axis) -> list[float | None]:
        """The mean cost of its own training, for each group."""
        costs = [all_known(run.cost(axis) for run in runs) for runs in self.runs]
        return [sum(group_costs) / len(group_costs) if group_costs else None for group_costs in costs]


def downstream_tasks(groups: Sequence[RunGroup], folders: Iterable[Path]) -> list[DownstreamTask]:
    """The tasks trained from runs of `groups`, by finished runs in these folders and in outputs."""
    candidates = _finished_runs([*folders, finding.OUTPUTS])
    runs_of: dict[tuple[str, str], list[list[DownstreamRun]]] = {}
    names: dict[tuple[str, str], str] = {}
    for number, group in enumerate(groups):
        for chain in _chains(group, candidates):
            if chain.metric is None:
                continue
            key = (
                recipe_key(
                    chain.run.record, [*SEEDS, *(key for key in chain.run.record.decides if key.startswith("model."))]
                ),
                chain.metric,
            )
            names.setdefault(key, chain.run.record.recipe or chain.run.name)
            runs_of.setdefault(key, [[] for _ in groups])[number].append(chain)
    tasks = [DownstreamTask(names[key], key[1], runs) for key, runs in runs_of.items()]
    return [_numbered(task, tasks) for task in tasks]


def _numbered(task: DownstreamTask, tasks: Sequence[DownstreamTask]) -> DownstreamTask:
    """Tasks of equal names, whose settings differ, get numbers."""
    same = [other for other in tasks if (other.name, other.metric) == (task.name, task.metric)]
    number = next(n for n, other in enumerate(same, start=1) if other is task)
    return task if len(same) == 1 else DownstreamTask(f"{task.name} #{number}", task.metric, task.runs)


def _finished_runs(folders: Iterable[Path]) -> list[RunCurves]:
    """Finished runs of one seed that began with another run's weights; damaged ones are left out."""
    finished: dict[Path, RunCurves] = {}
    for folder in dict.fromkeys(path.resolve() for path in folders):
        for path in finding.list_runs(folder):
            try:
                runs = with_members([RunCurves.read(path)])
            except RunFault:
                continue
            finished |= {
                run.folder: run for run in runs if run.record.hashes.get("init") and run.record.state == "done"
            }
    return [*finished.values()]


def _chains(group: RunGroup, candidates: Sequence[RunCurves]) -> list[DownstreamRun]:
    """Runs from the weights of the group's members, nearest first."""
    members = {member.folder.resolve() for member in group.members}
    open_: list[Sequence[RunCurves]] = [(member,) for member in group.members]
    chains: list[DownstreamRun] = []
    seen = set(members)
    while open_:
        chain = open_.pop(0)
        sha256 = (chain[-1].record.model or {}).get("sha256")
        for candidate in candidates:
            if candidate.record.hashes["init"] == sha256 and candidate.folder.resolve() not in seen:
                seen.add(candidate.folder.resolve())
                open_.append((*chain, candidate))
                chains.append(DownstreamRun((*chain[1:], candidate)))
    return chains

"""Sets of runs: several seeds (`train.seeds`) and cross-validation (`data.split: {folds: 5}`), one run per subfolder.

The folder gets the model of the median run. On small data sets the seed alone, or the choice of the validation data,
can move a metric by several points. Costs one full training per run; with seeds and folds, folds times seeds.
Source: Clark et al. 2020, arXiv:2003.10555, who report medians of ten fine-tuning runs; Kohavi 1995, A study of
cross-validation and bootstrap for accuracy estimation and model selection.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median_low, stdev
from typing import Any

from mini_tf.jobs.baselines import PREFIX, verdict
from mini_tf.jobs.closing_messages import format_metrics
from mini_tf.jobs.identifying import identify
from mini_tf.jobs.options import Options
from mini_tf.jobs.pretrain import pretrain
from mini_tf.jobs.session import Reporter, RunResult
from mini_tf.pipelines import pipeline_of
from mini_tf.recipe.kind_settings import ObjectiveSettings
from mini_tf.recipe.metrics import ranking_metrics
from mini_tf.recipe.reading import Resolved
from mini_tf.recipe.recipe import Recipe
from mini_tf.run import loading, manifest, set_files
from mini_tf.run.folder import Run
from mini_tf.run.following import follow
from mini_tf.run.identity import Identity
from mini_tf.run.opening import RunLocation, open_run, start_run
from mini_tf.system.errors import DataFault, Diverged, RunFault, UsageFault
from mini_tf.trained.ensembles import open_ensemble
from mini_tf.trained.evaluating import decision_notes, evaluation_data
from mini_tf.training.signals import StopRequest

Metrics = Mapping[str, float | None]
"""By the names that --assert uses; None if not finite."""
ENSEMBLE = ".ensemble"
"""Suffix of a metric of the ensemble of several seeds."""


@dataclass(frozen=True)
class Member:
    """One run of a set. kind: seed or fold; number: of its folder, from 1; value: the seed or the fold."""

    kind: str
    number: int
    value: int
    resolved: Resolved

    @property
    def folder(self) -> str:
        return f"{self.kind}-{self.number}"

    @property
    def title(self) -> str:
        return f"{self.folder} (train.seed {self.value})" if self.kind == "seed" else str(self.resolved.recipe.data.split)


@dataclass(frozen=True)
class FinishedRun:
    """A finished run of a set, and its metrics."""

    member: Member
    folder: Path
    metrics: Metrics

    @property
    def record(self) -> dict[str, Any]:
        """Its line of metrics.jsonl, without times."""
        left_out = ("minutes", PREFIX) if self.member.kind == "seed" else ("minutes",)  # baselines are the same for all seeds
        metrics = {name: value for name, value in self.metrics.items() if not name.startswith(left_out)}
        return {self.member.kind: self.member.value} | metrics


def members(resolved: Resolved) -> list[Member]:
    """The runs that a recipe stands for: one per fold, or one per seed; empty if it is a single run.

    With folds and seeds each fold is a set of seeds.
    """
    recipe = resolved.recipe
    if recipe.data.split.is_set:
        numbers = range(1, (recipe.data.split.folds or 0) + 1)
        splits = {number: recipe.data.split.model_copy(update={"fold": number}) for number in numbers}
        parts = [recipe.data.model_copy(update={"split": split}) for split in splits.values()]
        train = recipe.train if recipe.train.seeds > 1 else recipe.train.model_copy(update={"ensemble": None})
        return [
            Member("fold", number, number, replace(resolved, recipe=recipe.model_copy(update={"data": data, "train": train})))
            for number, data in zip(splits, parts, strict=True)
        ]
    if recipe.train.seeds == 1:
        return []
    single = recipe.train.model_copy(update={"seeds": 1, "ensemble": None})
    seeds = [single.model_copy(update={"seed": recipe.train.seed + n}) for n in range(recipe.train.seeds)]
    return [
        Member("seed", number, train.seed, replace(resolved, recipe=recipe.model_copy(update={"train": train})))
        for number, train in enumerate(seeds, start=1)
    ]


def train(resolved: Resolved, options: Options, reporter: Reporter) -> RunResult:
    """`pretrain` for a single run or a set of runs. The same call on an unfinished run continues it.

    For a set, `metrics` are those of `spread`.
    """
    several = members(resolved)
    if not several or options.dry_run:
        return pretrain(resolved, options, reporter)
    size = f"{len(several)} {several[0].kind}s"
    if options.extend is not None:
        name = several[0].folder
        hint = f"extend its runs one by one: minitf pretrain RUN/{name} -d RUN/{name} --extend N"
        raise UsageFault(f"--extend: a run of {size} cannot be extended", hint=hint)
    group = options.group
    identity = _identify(resolved, several, options, reporter)
    with follow(group, open_run(options.location, identity, options.command) if group.leads else None) as run:
        if run.status == "finished" and loading.is_published(run.folder, run.manifest, run.checkpoints.hashes):
            reporter.say(f"already complete: {run.folder} ({size}); --fresh starts over")
            return RunResult(run.folder, run.manifest.metrics)
        start_run(run, identity)
        done: list[FinishedRun] = []
        with StopRequest(reporter.say) as stop:
            for member in several:
                stop.request(stopping := max(group.gather(stop.number)))
                if stopping:  # since the previous run ended
                    return _stopped(run, stop.exit_code, f"before {member.folder}")
                result = _train_member(run, member, options, reporter)
                if result.folder is None or result.exit_code:
                    return _stopped(run, result.exit_code, f"in {member.folder}")
                if group.leads:
                    done.append(_finished(member, result.folder))
                    set_files.write_metrics(run, (one.record for one in done))
            return _finish(run, done, reporter, resolved.recipe) if group.leads else RunResult(run.folder, {})


def _identify(resolved: Resolved, several: Sequence[Member], options: Options, reporter: Reporter) -> Identity:
    """The identity of a set, with the hashes of its first run; the data of all its runs are read.

    Raises DataFault, which names the fold, if the data of one of them are invalid.
    """
    found = []
    for member in several if resolved.recipe.data.split.is_set else several[:1]:
        try:
            identity, data = identify(member.resolved, options, reporter)
        except DataFault as fault:
            if member.kind == "fold":
                raise DataFault(f"{member.title}: {fault.message}", hint=fault.hint, where=fault.where) from fault
            raise
        options.check(data)
        found.append(identity.hashes)
    return Identity.of(resolved, found[0])


def _stopped(run: Run, exit_code: int, where: str) -> RunResult:
    run.finish("stopped", exit_code, error=f"stopped {where}")
    return RunResult(run.folder, {}, exit_code)


def main_metric(metrics: Metrics, objective: ObjectiveSettings) -> str:
    """The metric that ranks runs: the pipeline's if it has one, else the loss. Higher is better but for the loss."""
    return next((name for one in ranking_metrics(objective) if (name := f"val.{one}") in metrics), "val.loss")


def median_run(metrics: Sequence[Metrics], name: str) -> int:
    """The index of the run with the median of this metric: the lower one of an even number, the first of equal ones."""
    worst = math.inf if name == "val.loss" else -math.inf
    values = [worst if (value := one.get(name)) is None else value for one in metrics]
    return values.index(median_low(values))


def spread(metrics: Sequence[Metrics]) -> dict[str, float | None]:
    """Lower median, .mean, sample .std, .min and .max of each metric of all runs; None if a value is not finite.

    A baseline does not depend on the seed; then it has one value.
    """
    same = [name for name in metrics[0] if name.startswith(PREFIX) and all(one.get(name) == metrics[0][name] for one in metrics)]
    found: dict[str, float | None] = {name: metrics[0][name] for name in same}
    for name in [name for name in metrics[0] if name not in found and all(name in one for one in metrics)]:
        values = [value for one in metrics if (value := one[name]) is not None]
        if len(values) < len(metrics):
            found[name] = None
            continue
        found[name] = median_low(values)
        found |= {f"{name}.mean": fmean(values), f"{name}.std": stdev(values), f"{name}.min": min(values), f"{name}.max": max(values)}
    return found


def _train_member(run: Run, member: Member, options: Options, reporter: Reporter) -> RunResult:
    """Start or continue one run of a set; its messages go to its own log.txt."""
    reporter.say(member.title)
    location = RunLocation(run.folder / member.folder)
    inner = Options(location, command=options.command, tensorboard=options.tensorboard, group=options.group)
    try:
        return train(member.resolved, inner, reporter)
    except Diverged as fault:
        raise Diverged(f"{member.title}: {fault.message}", hint=fault.hint, where=fault.where) from fault
    finally:
        reporter.log, reporter.crash = run.log, run.crash


def _finished(member: Member, folder: Path) -> FinishedRun:
    """The metrics of a finished run; of a set of seeds, their means."""
    metrics = manifest.read(folder).metrics
    if not metrics:
        raise RunFault(f"{folder} has lost its metrics", hint="remove it; the same command trains it again", where=[str(folder)])
    if members(member.resolved):
        means = {name: metrics[f"{name}.mean"] for name in metrics if {f"{name}.{what}" for what in ("mean", "std", "max")} <= {*metrics}}
        return FinishedRun(member, folder, {name: means.get(name, metrics[name]) for name in metrics if not _is_statistic(name, metrics)})
    return FinishedRun(member, folder, metrics)


def _is_statistic(name: str, metrics: Metrics) -> bool:
    """Whether a metric of a set is a statistic of another one; a class may be called `mean`."""
    of, _, what = name.rpartition(".")
    return of in metrics and what in ("mean", "std", "min", "max")


def _finish(run: Run, done: Sequence[FinishedRun], reporter: Reporter, recipe: Recipe) -> RunResult:
    """Copy the median run's model into the run folder and print the metrics of all runs."""
    each, kind, objective = [one.metrics for one in done], done[0].member.kind, recipe.objective
    name = main_metric(each[0], objective)
    median, metrics = done[median_run(each, name)], spread(each)
    set_files.write_metrics(run, (one.record | ({"median": True} if one is median else {}) for one in done))
    set_files.copy_model(run, median.folder)
    for one in done:
        what = f"  train.seed {one.member.value}" if kind == "seed" else ""
        line = f"{one.folder.name}{what}  {_format(one.metrics, name, objective)}"
        reporter.say(f"{line}  <- median" if one is median else line)
    reporter.say(f"median over {len(done)} {kind}s: {_format_spread(name, metrics, kind)}")
    baseline, value = manifest.read(median.folder).baseline, metrics.get(f"{PREFIX}{name.removeprefix('val.')}")
    whose, reached = "the median", metrics[name]
    if recipe.train.ensemble is not None and kind == "seed":
        together = _ensemble_metrics(run, reporter, f"ensemble of {len(done)} seeds", name, objective)
        metrics |= {f"{metric}{ENSEMBLE}": value for metric, value in together.items()}
        whose, reached = "the ensemble", together[name]
    if baseline is not None and value is not None:
        reporter.say(f"baseline: {verdict(baseline, name.removeprefix('val.'), value, reached, whose)}")
        run.update(baseline=baseline)
    reporter.say(f"the model is that of {median.folder.name}, which also has the checkpoints")
    if recipe.train.ensemble is not None:
        reporter.say(f"`predict` and `evaluate` average the predictions of the models of {len(done)} {kind}s")
    run.finish("done", metrics={name: math.nan if value is None else value for name, value in metrics.items()})
    return RunResult(run.folder, metrics)


def _ensemble_metrics(run: Run, reporter: Reporter, title: str, name: str, objective: ObjectiveSettings) -> dict[str, float | None]:
    """Measure the ensemble of all runs on the validation data, and say so."""
    trained = open_ensemble(run.folder, device=str(run.manifest.auto.get("device", "auto")))
    found = pipeline_of(trained).evaluate(trained, evaluation_data(trained, None, "val", reporter.detail))
    metrics = {f"val.{name}": value if math.isfinite(value) else None for name, value in found.items() if name != "targets"}
    reporter.say(f"{title}: {_format(metrics, name, objective)}")
    for note in decision_notes(trained, fitted_on=True):
        reporter.say(note)
    return metrics


def _format(metrics: Metrics, name: str, objective: ObjectiveSettings) -> str:
    """The main metric, then the others of `format_metrics`."""
    finite = {name: math.nan if value is None else value for name, value in metrics.items()}
    rest = format_metrics({other: value for other, value in finite.items() if other != name}, objective)
    return f"{name} {finite[name]:.4f}" + (f", {rest}" if rest else "")


def _format_spread(name: str, metrics: Metrics, kind: str) -> str:
    median = metrics[name]
    if median is None:
        return f"{name} is not finite for every {kind}"
    mean, std, least, most = (metrics[f"{name}.{what}"] for what in ("mean", "std", "min", "max"))
    return f"{name} {median:.4f} (mean {mean:.4f}, standard deviation {std:.4f}, {least:.4f} to {most:.4f})"

"""Sets of runs: several seeds (`train.seeds`) and cross-validation (`data.split: {folds: 5}`), one run per subfolder.

The folder gets the model of the median run. On small data sets the seed alone, or the choice of the validation data,
can move a metric by several points. Costs one full training per run; with seeds and folds, folds times seeds.
Source: Clark et al. 2020, arXiv:2003.10555, who report medians of ten fine-tuning runs; Kohavi 1995, A study of
cross-validation and bootstrap for accuracy estimation and model selection.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from mini_tf.jobs import set_metrics
from mini_tf.jobs.assembling import Options, identify
from mini_tf.jobs.baselines import PREFIX
from mini_tf.jobs.messages import Reporter, next_commands
from mini_tf.jobs.pretrain import pretrain
from mini_tf.jobs.session import RunResult
from mini_tf.jobs.set_metrics import Metrics
from mini_tf.pipelines import pipeline_of
from mini_tf.recipe.kind_settings.objectives import ObjectiveSettings
from mini_tf.recipe.reading import Resolved
from mini_tf.recipe.recipe import Recipe
from mini_tf.run import loading, manifest
from mini_tf.run.finding import is_run
from mini_tf.run.folder import Run
from mini_tf.run.following import follow
from mini_tf.run.identity import Identity
from mini_tf.run.location import RunLocation, copy_model, open_run, start_run, write_metrics
from mini_tf.system.errors import DataFault, Diverged, RunFault, UsageFault
from mini_tf.trained.ensembles import ENSEMBLE, open_ensemble
from mini_tf.trained.evaluating import decision_notes, evaluation_data
from mini_tf.training.signals import StopRequest


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
        is_seed = self.kind == "seed"
        return f"{self.folder} (train.seed {self.value})" if is_seed else str(self.resolved.recipe.data.split)


@dataclass(frozen=True)
class FinishedRun:
    """A finished run of a set, and its metrics."""

    member: Member
    folder: Path
    metrics: Metrics

    @property
    def title(self) -> str:
        """Its folder and its seed."""
        return self.folder.name + (f"  train.seed {self.member.value}" if self.member.kind == "seed" else "")

    @property
    def record(self) -> dict[str, Any]:
        """Its line of metrics.jsonl, without times."""
        # Baselines are the same for all seeds.
        left_out = ("minutes", PREFIX) if self.member.kind == "seed" else ("minutes",)
        metrics = {name: value for name, value in self.metrics.items() if not name.startswith(left_out)}
        return {self.member.kind: self.member.value} | metrics


def members(resolved: Resolved) -> list[Member]:
    """The runs that a recipe stands for: one per fold, or one per seed; empty if it is a single run.

    With folds and seeds each fold is a set of seeds.
    """
    recipe, train = resolved.recipe, resolved.recipe.train

    def member(kind: str, number: int, value: int, **sections: Any) -> Member:
        return Member(kind, number, value, replace(resolved, recipe=recipe.model_copy(update=sections)))

    if recipe.data.split.is_set:
        of_fold = train if train.seeds > 1 else train.model_copy(update={"ensemble": None})
        splits = [recipe.data.split.model_copy(update={"fold": n + 1}) for n in range(recipe.data.split.folds or 0)]
        parts = [recipe.data.model_copy(update={"split": split}) for split in splits]
        return [member("fold", n, n, data=data, train=of_fold) for n, data in enumerate(parts, start=1)]
    if train.seeds == 1:
        return []
    single = train.model_copy(update={"seeds": 1, "ensemble": None})
    seeds = [single.model_copy(update={"seed": train.seed + n}) for n in range(train.seeds)]
    return [member("seed", n, of_seed.seed, train=of_seed) for n, of_seed in enumerate(seeds, start=1)]


def train(resolved: Resolved, options: Options, reporter: Reporter) -> RunResult:
    """`pretrain` for a single run or a set of runs. The same call on an unfinished run continues it.

    For a set, `metrics` are those of `spread`.
    """
    several = members(resolved)
    if not several:
        return pretrain(resolved, options, reporter)
    size = f"{len(several)} {several[0].kind}s"
    if options.extend is not None:
        name = several[0].folder
        hint = f"extend its runs one by one: minitf pretrain RUN/{name} -d RUN/{name} --extend N"
        raise UsageFault(f"--extend: a run of {size} cannot be extended", hint=hint)
    if options.stop_at is not None:
        raise UsageFault(f"--stop-at: of a run of {size}", hint="Ctrl-C stops it; the same command continues")
    group = options.group
    identity = _identify(resolved, several, options, reporter)
    with follow(group, lambda: open_run(options.location, identity, options.command)) as run:
        if run.status == "finished" and group.on_rank_0(
            lambda: loading.is_published(run.folder, run.manifest, run.checkpoints.hashes)
        ):
            missing = [member.folder for member in several if not is_run(run.folder / member.folder)]
            lost = f", but it has lost {', '.join(missing)}" if missing else ""
            reporter.say(f"already complete: {run.folder} ({size}){lost}; --fresh starts a new run")
            return RunResult(run.folder, run.manifest.metrics)
        start_run(run, identity)
        fewer = "; train.seeds=1 trains one" if several[0].kind == "seed" else ""
        reporter.say(f"{size}: {len(several)} models are trained, one after the other{fewer}")
        done: list[FinishedRun] = []
        with StopRequest(reporter.say) as stop:
            for member in several:
                stop.request(stopping := max(group.all_gather(stop.number)))
                if stopping:  # since the previous run ended
                    return _stopped(run, stop.exit_code, f"before {member.folder}")
                result = _train_member(run, member, options, reporter)
                if result.exit_code:
                    return _stopped(run, result.exit_code, f"in {member.folder}")
                group.on_rank_0(partial(_add, done, member, result.folder, run))
            return RunResult(run.folder, group.on_rank_0(lambda: _finish(run, done, reporter, resolved.recipe)))


def _identify(resolved: Resolved, several: Sequence[Member], options: Options, reporter: Reporter) -> Identity:
    """The identity of a set, with the hashes of its first run; the data of all its runs are read.

    Raises DataFault, which names the fold, if the data of one of them are invalid.
    """
    hashes = []
    for member in several if resolved.recipe.data.split.is_set else several[:1]:
        try:
            identity, data = identify(member.resolved, options, reporter)
        except DataFault as fault:
            if member.kind == "fold":
                raise DataFault(f"{member.title}: {fault.message}", hint=fault.hint, where=fault.where) from fault
            raise
        options.check(data)
        hashes.append(identity.hashes)
    return Identity.of(resolved, hashes[0])


def _stopped(run: Run, exit_code: int, where: str) -> RunResult:
    run.finish("stopped", exit_code, error=f"stopped {where}")
    return RunResult(run.folder, {}, exit_code)


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


def _add(done: list[FinishedRun], member: Member, folder: Path, run: Run) -> None:
    """Add a finished run and write the metrics of all; of a set of seeds, their means, and those of its ensemble."""
    metrics = manifest.read(folder).metrics
    if not metrics:
        hint = "remove it; the same command trains it again"
        raise RunFault(f"{folder} has lost its metrics", hint=hint, where=[str(folder)])
    done.append(FinishedRun(member, folder, set_metrics.means_of(metrics) if members(member.resolved) else metrics))
    write_metrics(run, (finished.record for finished in done))


def _finish(run: Run, done: Sequence[FinishedRun], reporter: Reporter, recipe: Recipe) -> dict[str, float | None]:
    """Copy the median run's model into the run folder, print the metrics of all runs, and return those of the set."""
    kind, objective = done[0].member.kind, recipe.objective
    each = [finished.metrics for finished in done]
    baselines = [manifest.read(finished.folder).baseline for finished in done]
    name, baseline = set_metrics.main_metric(each[0], objective), baselines[0]
    if kind == "fold":
        baseline, each = set_metrics.same_baseline(each, baselines, name, objective)
        done = [replace(finished, metrics=metrics) for finished, metrics in zip(done, each, strict=True)]
    judged = set_metrics.name_of_ensemble(name, each)
    median, metrics = done[set_metrics.median_run(each, judged)], set_metrics.spread(each, kind == "seed")
    lines = (finished.record | ({"median": True} if finished is median else {}) for finished in done)
    write_metrics(run, lines)
    copy_model(run, median.folder)
    for finished in done:
        line = set_metrics.line_of_run(finished.title, finished.metrics, name, objective, kind == "fold")
        reporter.say(line + "  <- median" * (finished is median))
    reporter.say(f"median over {len(done)} {kind}s: {set_metrics.format_spread(judged, metrics, kind)}")
    if recipe.train.ensemble is not None and kind == "seed":
        together = _ensemble_metrics(run, reporter, f"ensemble of {len(done)} seeds", name, objective)
        metrics |= {f"{metric}{ENSEMBLE}": value for metric, value in together.items()}
    if baseline is not None and (line := set_metrics.baseline_line(baseline, metrics, judged, kind)):
        reporter.say(line)
        run.update(baseline=baseline)
    reporter.say(f"the model is that of {median.folder.name}, which also has the checkpoints")
    if recipe.train.ensemble is not None:
        reporter.say(f"`predict` and `evaluate` average the predictions of the models of {len(done)} {kind}s")
    pipeline = objective.pipeline()
    no_data = kind == "fold" and recipe.train.ensemble is not None  # its models have no validation data in common
    reporter.say(next_commands(run.folder, None if pipeline is None else pipeline.COMMAND, " --data FILE" * no_data))
    run.finish("done", metrics={name: math.nan if value is None else value for name, value in metrics.items()})
    return metrics


def _ensemble_metrics(
    run: Run, reporter: Reporter, title: str, name: str, objective: ObjectiveSettings
) -> dict[str, float | None]:
    """Measure the ensemble of all runs on the validation data, and say so."""
    trained = open_ensemble(run.folder, device=str(run.manifest.auto.get("device", "auto")))
    measured = pipeline_of(trained).evaluate(trained, evaluation_data(trained, None, "val", reporter.detail))
    measured.pop("targets", None)
    metrics = {f"val.{name}": value if math.isfinite(value) else None for name, value in measured.items()}
    reporter.say(f"{title}: {set_metrics.format_main(metrics, name, objective)}")
    for note in decision_notes(trained, fitted_on=True):
        reporter.say(note)
    return metrics

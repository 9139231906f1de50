"""Training with several seeds (`train.seeds`): one run per seed in a subfolder; the folder gets the median run's model.

On small data sets the seed alone can move a metric by several points. Costs one full training per seed.
Source: Clark et al. 2020, arXiv:2003.10555, who report medians of ten fine-tuning runs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median_low, stdev
from typing import Any

from mini_tf.jobs.baselines import PREFIX, verdict
from mini_tf.jobs.closing_messages import format_metrics
from mini_tf.jobs.pretrain import Options, identify, pretrain
from mini_tf.jobs.session import Reporter, RunResult
from mini_tf.recipe.kind_settings import ObjectiveSettings
from mini_tf.recipe.reading import Resolved
from mini_tf.run import finding, loading, manifest, seed_runs
from mini_tf.run.folder import Run
from mini_tf.run.opening import RunLocation, open_run, start_run
from mini_tf.scores import ranking_metrics
from mini_tf.system.errors import Diverged, RunFault, UsageFault
from mini_tf.training.signals import StopRequest

Metrics = Mapping[str, float | None]
"""By the names that --assert uses; None if not finite."""


@dataclass(frozen=True)
class SeedRun:
    """The finished run of one seed, and its metrics."""

    seed: int
    folder: Path
    metrics: Metrics

    @property
    def record(self) -> dict[str, Any]:
        """Its line of metrics.jsonl, without times."""
        same = ("minutes", PREFIX)  # times, and baselines, which are the same for all seeds
        return {"seed": self.seed} | {name: value for name, value in self.metrics.items() if not name.startswith(same)}


def train(resolved: Resolved, options: Options, reporter: Reporter) -> RunResult:
    """`pretrain` for any number of `train.seeds`. The same call on an unfinished run continues it.

    With several seeds, `metrics` are those of `spread`.
    """
    seeds = resolved.recipe.train.seeds
    if seeds == 1 or options.dry_run:
        return pretrain(resolved, options, reporter)
    if options.extend is not None:
        hint = "extend its seed folders one by one: minitf pretrain RUN/seed-1 -d RUN/seed-1 --extend N"
        raise UsageFault(f"--extend: a run of {seeds} seeds cannot be extended", hint=hint)
    identity, data = identify(resolved, options.location, reporter)
    options.check(data)
    with open_run(options.location, identity, options.command) as run:
        if run.status == "finished" and loading.is_published(run.folder, run.manifest, run.checkpoints.hashes):
            reporter.say(f"already complete: {run.folder} ({seeds} seeds); --fresh starts over")
            return RunResult(run.folder, run.manifest.metrics)
        start_run(run, identity)
        done: list[SeedRun] = []
        with StopRequest(reporter.say) as stop:
            for number, single in enumerate(single_seed_recipes(resolved), start=1):
                if stop:  # since the previous seed ended
                    return _stopped(run, stop.exit_code, f"before seed-{number}")
                result = _train_seed(run, number, single, options, reporter)
                if result.folder is None or result.exit_code:
                    return _stopped(run, result.exit_code, f"in seed-{number}")
                done.append(_finished(result.folder, single.recipe.train.seed))
                seed_runs.write_seed_metrics(run, (one.record for one in done))
            return _finish(run, done, reporter, resolved.recipe.objective)


def _stopped(run: Run, exit_code: int, where: str) -> RunResult:
    run.finish("stopped", exit_code, error=f"stopped {where}")
    return RunResult(run.folder, {}, exit_code)


def single_seed_recipes(resolved: Resolved) -> Iterator[Resolved]:
    """The recipe for each seed, with `train.seeds` 1."""
    recipe = resolved.recipe
    for number in range(recipe.train.seeds):
        one = recipe.train.model_copy(update={"seed": recipe.train.seed + number, "seeds": 1})
        yield replace(resolved, recipe=recipe.model_copy(update={"train": one}))


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

    Baselines do not depend on the seed.
    """
    found: dict[str, float | None] = {name: value for name, value in metrics[0].items() if name.startswith(PREFIX)}
    for name in [name for name in metrics[0] if name not in found and all(name in one for one in metrics)]:
        values = [value for one in metrics if (value := one[name]) is not None]
        if len(values) < len(metrics):
            found[name] = None
            continue
        found[name] = median_low(values)
        found |= {f"{name}.mean": fmean(values), f"{name}.std": stdev(values), f"{name}.min": min(values), f"{name}.max": max(values)}
    return found


def _train_seed(run: Run, number: int, single: Resolved, options: Options, reporter: Reporter) -> RunResult:
    """Start or continue the run of one seed; its messages go to its own log.txt."""
    title = f"seed-{number} (train.seed {single.recipe.train.seed})"
    reporter.say(title)
    try:
        return pretrain(
            single,
            Options(RunLocation(finding.seed_folder(run.folder, number)), command=options.command, tensorboard=options.tensorboard),
            reporter,
        )
    except Diverged as fault:
        raise Diverged(f"{title}: {fault.message}", hint=fault.hint, where=fault.where) from fault
    finally:
        reporter.log, reporter.crash = run.log, run.crash


def _finished(folder: Path, seed: int) -> SeedRun:
    metrics = manifest.read(folder).metrics
    if not metrics:
        raise RunFault(f"{folder} has lost its metrics", hint="remove it; the same command trains it again", where=[str(folder)])
    return SeedRun(seed, folder, metrics)


def _finish(run: Run, done: Sequence[SeedRun], reporter: Reporter, objective: ObjectiveSettings) -> RunResult:
    """Copy the median run's model into the run folder and print the metrics of all seeds."""
    each = [one.metrics for one in done]
    name = main_metric(each[0], objective)
    median, metrics = done[median_run(each, name)], spread(each)
    seed_runs.write_seed_metrics(run, (one.record | ({"median": True} if one is median else {}) for one in done))
    seed_runs.copy_model(run, median.folder)
    for one in done:
        line = f"{one.folder.name}  train.seed {one.seed}  {_format(one.metrics, name, objective)}"
        reporter.say(f"{line}  <- median" if one is median else line)
    reporter.say(f"median over {len(done)} seeds: {_format_spread(name, metrics)}")
    baseline, value = manifest.read(median.folder).baseline, metrics.get(f"{PREFIX}{name.removeprefix('val.')}")
    if baseline is not None and value is not None:
        reporter.say(f"baseline: {verdict(baseline, name.removeprefix('val.'), value, metrics[name])}")
        run.update(baseline=baseline)
    reporter.say(f"the model is that of {median.folder.name}, which also has the checkpoints")
    run.finish("done", metrics={name: math.nan if value is None else value for name, value in metrics.items()})
    return RunResult(run.folder, metrics)


def _format(metrics: Metrics, name: str, objective: ObjectiveSettings) -> str:
    """The main metric, then the others of `format_metrics`."""
    finite = {name: math.nan if value is None else value for name, value in metrics.items()}
    rest = format_metrics({other: value for other, value in finite.items() if other != name}, objective)
    return f"{name} {finite[name]:.4f}" + (f", {rest}" if rest else "")


def _format_spread(name: str, metrics: Metrics) -> str:
    median = metrics[name]
    if median is None:
        return f"{name} is not finite for every seed"
    mean, std, least, most = (metrics[f"{name}.{what}"] for what in ("mean", "std", "min", "max"))
    return f"{name} {median:.4f} (mean {mean:.4f}, standard deviation {std:.4f}, {least:.4f} to {most:.4f})"

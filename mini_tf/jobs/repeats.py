"""One recipe from several seeds (`train.seeds`): a run for each inside the run's folder, which then has the median run's model.

On a small data set the seed alone can move a figure by several points, so one run says little. It costs as many runs as there are
seeds. Source: Clark et al. 2020, arXiv:2003.10555, who report medians of ten fine-tuning runs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median_low, stdev
from typing import Any

from mini_tf.jobs.closing_messages import format_metrics
from mini_tf.jobs.pretrain import Options, identified, pretrain
from mini_tf.jobs.session import Reporter, RunResult
from mini_tf.recipe.kind_settings import ObjectiveSettings
from mini_tf.recipe.reading import Resolved
from mini_tf.run import finding, loading, manifest, seed_runs
from mini_tf.run.folder import Run
from mini_tf.run.opening import RunLocation, open_run, start_run
from mini_tf.system.errors import Diverged, RunFault, UsageFault
from mini_tf.training.signals import StopRequest

Figures = Mapping[str, float | None]
"""By the names that --assert uses; None where it was not finite."""


@dataclass(frozen=True)
class Repeat:
    """The finished run of one seed, and what it measured."""

    seed: int
    folder: Path
    figures: Figures

    @property
    def line(self) -> dict[str, Any]:
        """Its line of metrics.jsonl, which has nothing of the clock."""
        return {"seed": self.seed} | {name: value for name, value in self.figures.items() if name != "minutes"}


def train(resolved: Resolved, options: Options, reporter: Reporter) -> RunResult:
    """As `pretrain`, for `train.seeds` of any number: the same call on an unfinished folder continues it.

    Of several seeds, `metrics` hold each figure's median under its own name, and what `spread` has besides.
    """
    seeds = resolved.recipe.train.seeds
    if seeds == 1 or options.dry_run:
        return pretrain(resolved, options, reporter)
    if options.extend is not None:
        way = "extend its seed folders one by one: minitf pretrain RUN/seed-1 -d RUN/seed-1 --extend N"
        raise UsageFault(f"--extend: a run of {seeds} seeds is not extended as a whole", hint=way)
    identity, text = identified(resolved, options.location, reporter)
    options.check(text)
    with open_run(options.location, identity, options.command) as run:
        if run.status == "finished" and loading.is_published(run.folder, run.manifest, run.checkpoints.hashes):
            reporter.say(f"already complete: {run.folder} ({seeds} seeds); --fresh starts over")
            return RunResult(run.folder, run.manifest.metrics)
        start_run(run, identity)
        done: list[Repeat] = []
        with StopRequest(reporter.say) as stop:
            for number, single in enumerate(singles(resolved), start=1):
                if stop:  # since the seed before was done
                    return _stopped(run, stop.exit_code, f"before seed-{number}")
                outcome = _train_one(run, number, single, options, reporter)
                if outcome.folder is None or outcome.exit_code:
                    return _stopped(run, outcome.exit_code, f"in seed-{number}")
                done.append(_finished(outcome.folder, single.recipe.train.seed))
                seed_runs.write_seed_metrics(run, (one.line for one in done))
            return _finish(run, done, reporter, resolved.recipe.objective)


def _stopped(run: Run, exit_code: int, where: str) -> RunResult:
    run.finish("stopped", exit_code, error=f"stopped {where}")
    return RunResult(run.folder, {}, exit_code)


def singles(resolved: Resolved) -> Iterator[Resolved]:
    """The recipe of each seed, as an ordinary run has it."""
    recipe = resolved.recipe
    for number in range(recipe.train.seeds):
        one = recipe.train.model_copy(update={"seed": recipe.train.seed + number, "seeds": 1})
        yield replace(resolved, recipe=recipe.model_copy(update={"train": one}))


def main_figure(figures: Figures, objective: ObjectiveSettings) -> str:
    """The figure by which runs are ranked: the pipeline's, where there is one, else the loss. All but the loss are better when larger."""
    pipeline = objective.pipeline()
    names = [] if pipeline is None else [f"val.{name}" for name in pipeline.MAIN]
    return next((name for name in names if name in figures), "val.loss")


def median_run(figures: Sequence[Figures], name: str) -> int:
    """The index of the run whose main figure, of this name, is the median: the lower one of an even number, the first of equal ones."""
    worst = math.inf if name == "val.loss" else -math.inf
    values = [worst if (value := one.get(name)) is None else value for one in figures]
    return values.index(median_low(values))


def spread(figures: Sequence[Figures]) -> dict[str, float | None]:
    """Of each figure that all runs have: the (lower) median, .mean, .std (of a sample), .min and .max; None where one is not finite."""
    found: dict[str, float | None] = {}
    for name in [name for name in figures[0] if all(name in one for one in figures)]:
        values = [value for one in figures if (value := one[name]) is not None]
        if len(values) < len(figures):
            found[name] = None
            continue
        found[name] = median_low(values)
        found |= {f"{name}.mean": fmean(values), f"{name}.std": stdev(values), f"{name}.min": min(values), f"{name}.max": max(values)}
    return found


def _train_one(run: Run, number: int, single: Resolved, options: Options, reporter: Reporter) -> RunResult:
    """Begin, continue or find complete the run of one seed; while it lasts, what is said stands in its own log.txt."""
    named = f"seed-{number} (train.seed {single.recipe.train.seed})"
    reporter.say(named)
    try:
        return pretrain(
            single,
            Options(RunLocation(finding.seed_folder(run.folder, number)), command=options.command, tensorboard=options.tensorboard),
            reporter,
        )
    except Diverged as fault:
        raise Diverged(f"{named}: {fault.message}", hint=fault.hint, where=fault.where) from fault
    finally:
        reporter.log, reporter.crash = run.log, run.crash


def _finished(folder: Path, seed: int) -> Repeat:
    figures = manifest.read(folder).metrics
    if not figures:
        raise RunFault(f"{folder} has no figures any more", hint="remove it; the same command trains it anew", where=[str(folder)])
    return Repeat(seed, folder, figures)


def _finish(run: Run, done: Sequence[Repeat], reporter: Reporter, objective: ObjectiveSettings) -> RunResult:
    """Give the run the median run's model, and tell of all."""
    figures = [one.figures for one in done]
    name = main_figure(figures[0], objective)
    median, metrics = done[median_run(figures, name)], spread(figures)
    seed_runs.write_seed_metrics(run, (one.line | ({"median": True} if one is median else {}) for one in done))
    seed_runs.copy_model(run, median.folder)
    for one in done:
        reporter.say(
            f"{one.folder.name}  train.seed {one.seed}  {_told(one.figures, name, objective)}{'  <- the median' if one is median else ''}"
        )
    reporter.say(f"each figure's own median over {len(done)} seeds: {_spread_of(name, metrics)}")
    reporter.say(f"the model is that of {median.folder.name}, which has all checkpoints too")
    run.finish("done", metrics={name: math.nan if value is None else value for name, value in metrics.items()})
    return RunResult(run.folder, metrics)


def _told(figures: Figures, name: str, objective: ObjectiveSettings) -> str:
    """What people ask for first, the main figure before all."""
    finite = {name: math.nan if value is None else value for name, value in figures.items()}
    rest = format_metrics({other: value for other, value in finite.items() if other != name}, objective)
    return f"{name} {finite[name]:.4f}" + (f", {rest}" if rest else "")


def _spread_of(name: str, metrics: Figures) -> str:
    median = metrics[name]
    if median is None:
        return f"{name} is not finite in all of them"
    mean, std, least, most = (metrics[f"{name}.{what}"] for what in ("mean", "std", "min", "max"))
    return f"{name} {median:.4f} (mean {mean:.4f}, standard deviation {std:.4f}, {least:.4f} to {most:.4f})"

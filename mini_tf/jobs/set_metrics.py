"""The metrics of a set of runs: its median, its spread, the baseline of all its runs, and the lines about them."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median_low, stdev

from mini_tf.jobs.baselines import PREFIX, verdict
from mini_tf.jobs.messages import format_metrics
from mini_tf.recipe.kind_settings.objectives import ObjectiveSettings
from mini_tf.recipe.metrics import lower_is_better, ranking_metrics
from mini_tf.trained.ensembles import ENSEMBLE

Metrics = Mapping[str, float | None]
"""By the names that --assert uses; None if not finite."""


def main_metric(metrics: Metrics, objective: ObjectiveSettings) -> str:
    """The metric that ranks runs: the pipeline's if it has one, else the loss. Higher is better but for the loss."""
    return next((name for metric in ranking_metrics(objective) if (name := f"val.{metric}") in metrics), "val.loss")


def median_run(metrics: Sequence[Metrics], name: str) -> int:
    """The index of the run with the median of this metric: the lower one of an even number, the first of equal ones."""
    worst = math.inf if name.removesuffix(ENSEMBLE) == "val.loss" else -math.inf
    values = [worst if (value := run_metrics.get(name)) is None else value for run_metrics in metrics]
    return values.index(median_low(values))


def spread(metrics: Sequence[Metrics], seeds: bool = True) -> dict[str, float | None]:
    """Lower median, .mean, sample .std, .min and .max of each metric of all runs; None if a value is not finite.

    seeds: the runs are seeds, on which a baseline does not depend: it has one value.
    """
    of_seeds = [name for name in metrics[0] if seeds and name.startswith(PREFIX)]
    shared = [name for name in of_seeds if all(run_metrics.get(name) == metrics[0][name] for run_metrics in metrics)]
    values_of = {name: metrics[0][name] for name in shared}
    # Chosen before any is added: a class of the data may be called `mean` or `max`.
    for name in [
        name for name in metrics[0] if name not in values_of and all(name in run_metrics for run_metrics in metrics)
    ]:
        values = [value for run_metrics in metrics if (value := run_metrics[name]) is not None]
        if len(values) < len(metrics):
            values_of[name] = None
            continue
        values_of |= {name: median_low(values), f"{name}.mean": fmean(values), f"{name}.std": stdev(values)}
        values_of |= {f"{name}.min": min(values), f"{name}.max": max(values)}
    return values_of


def means_of(metrics: Metrics) -> dict[str, float | None]:
    """Of the metrics of a set of seeds: their means, and those of its ensemble and of its baselines as they are."""
    statistics = ("mean", "std", "max")
    means = {name: metrics[f"{name}.mean"] for name in metrics if {f"{name}.{s}" for s in statistics} <= {*metrics}}
    return {name: means.get(name, metrics[name]) for name in metrics if not _is_statistic(name, metrics)}


def _is_statistic(name: str, metrics: Metrics) -> bool:
    """Whether a metric of a set is a statistic of another one; a class may be called `mean`."""
    of, _, statistic = name.rpartition(".")
    return of in metrics and statistic in ("mean", "std", "min", "max")


def name_of_ensemble(name: str, each: Sequence[Metrics]) -> str:
    """The metric of the ensembles where each run of a set is an ensemble of seeds, else the metric itself."""
    return f"{name}{ENSEMBLE}" if all(f"{name}{ENSEMBLE}" in metrics for metrics in each) else name


def same_baseline(
    each: Sequence[Metrics], names: Sequence[str | None], name: str, objective: ObjectiveSettings
) -> tuple[str | None, list[Metrics]]:
    """The baseline that is the best in the mean over folds, by name, and the metrics of each fold with its values.

    The best one of a fold may be another one than that of the next. names: of the best baseline of each fold. name: the
    metric that ranks them. Metrics that are known of the best one only are left out where that is another one.
    """
    metric = name.removeprefix("val.")
    known = {kind: [metrics.get(f"{PREFIX}{kind}.{metric}") for metrics in each] for kind in objective.BASELINES}
    means = {
        kind: fmean(measured)
        for kind, values in known.items()
        if len(measured := [v for v in values if v is not None]) == len(each)
    }
    if not means:
        return None, [{key: value for key, value in metrics.items() if not key.startswith(PREFIX)} for metrics in each]
    best = (min if metric in lower_is_better(objective) else max)(means, key=lambda kind: means[kind])
    is_best = [metrics.get(f"{PREFIX}{metric}") == metrics[f"{PREFIX}{best}.{metric}"] for metrics in each]
    titles = {title for title, first in zip(names, is_best, strict=True) if first and title is not None}
    prefix = f"{PREFIX}{best}."

    def with_best(metrics: Metrics) -> Metrics:
        of_best = {PREFIX + key.removeprefix(prefix): value for key, value in metrics.items() if key.startswith(prefix)}
        of_kinds = tuple(f"{PREFIX}{kind}." for kind in objective.BASELINES)
        of_one = {key for key in metrics if key.startswith(PREFIX) and not key.startswith(of_kinds)}
        dropped = set() if all(is_best) else of_one - of_best.keys()
        return {key: of_best.get(key, value) for key, value in metrics.items() if key not in dropped}

    return (titles.pop() if len(titles) == 1 else best), [with_best(metrics) for metrics in each]


def line_of_run(title: str, metrics: Metrics, name: str, objective: ObjectiveSettings, with_baseline: bool) -> str:
    """The metrics of one run of a set; of its ensemble, if it is one of several seeds."""
    shown = {key: metrics.get(f"{key}{ENSEMBLE}", value) for key, value in metrics.items()}
    line = f"{title}  {format_main(shown, name, objective)}" + (" (ensemble)" if f"{name}{ENSEMBLE}" in metrics else "")
    baseline = metrics.get(f"{PREFIX}{name.removeprefix('val.')}")
    return line if baseline is None or not with_baseline else f"{line}; baseline {baseline:.4f}"


def baseline_line(baseline: str, metrics: Metrics, name: str, kind: str) -> str:
    """The baseline beside the ensemble of seeds, or else their median, or the mean over folds; "" if it has no value.

    metrics: of the set. name: the metric that is compared.
    """
    metric = name.removesuffix(ENSEMBLE).removeprefix("val.")
    if kind == "fold":
        value, reached = (metrics.get(f"{key}.mean") for key in (f"{PREFIX}{metric}", name))
        return "" if value is None else f"baseline, mean over folds: {verdict(baseline, metric, value, reached)}"
    value, together = metrics.get(f"{PREFIX}{metric}"), f"{name}{ENSEMBLE}"
    whose, reached = ("the ensemble", metrics[together]) if together in metrics else ("the median", metrics[name])
    return "" if value is None else f"baseline: {verdict(baseline, metric, value, reached, whose)}"


def format_main(metrics: Metrics, name: str, objective: ObjectiveSettings) -> str:
    """The main metric, then the others of `format_metrics`."""
    finite = {name: math.nan if value is None else value for name, value in metrics.items()}
    rest = format_metrics({other: value for other, value in finite.items() if other != name}, objective)
    return f"{name} {finite[name]:.4f}" + (f", {rest}" if rest else "")


def format_spread(name: str, metrics: Metrics, kind: str) -> str:
    median = metrics[name]
    if median is None:
        return f"{name} is not finite for every {kind}"
    mean, std, least, most = (metrics[f"{name}.{statistic}"] for statistic in ("mean", "std", "min", "max"))
    return f"{name} {median:.4f} (mean {mean:.4f}, standard deviation {std:.4f}, {least:.4f} to {most:.4f})"

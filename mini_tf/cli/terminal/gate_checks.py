"""--assert: checked before any work is done, as the command must compute the metric, and when the metrics are known."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mini_tf.system.errors import GateMissed, UsageFault

if TYPE_CHECKING:
    from mini_tf.recipe.metrics import Gate
    from mini_tf.recipe.recipe import Recipe

COMPLETED_BY = {"pairs": "UID", "babylm": "SCORE"}
"""What completes a metric that ends in a dot, of `evaluate` with this option; else a class."""
OF_SEEDS = (".mean", ".std", ".min", ".max", ".ensemble")
"""Suffixes of a metric of several seeds or folds; the name alone is their median."""


def parse_gates(gates: Sequence[str] | None) -> "list[Gate]":
    """The bounds of --assert; UsageFault for one that is not a comparison."""
    from mini_tf.recipe.metrics import Gate

    return [Gate.parse(gate) for gate in gates or ()]


def refuse_missed(gates: "Sequence[Gate]", metrics: Mapping[str, float | None]) -> None:
    """GateMissed if a metric misses its bound."""
    from mini_tf.recipe.metrics import failures

    if missed := failures(gates, metrics):
        raise GateMissed(missed[0], faults=missed)


def check_gates(
    gates: "Sequence[Gate]",
    command: Literal["training", "evaluate", "predict", "pairs", "babylm"],
    recipe: "Recipe",
    classes: Sequence[str] | None = None,
) -> None:
    """UsageFault if `command` does not compute the metric for this recipe, Unavailable if its package is missing.

    pairs, babylm: `evaluate` with this option. classes: names of the run's classes or tags, where known; default: those
    in the recipe.
    """
    from mini_tf.recipe.metrics import metric_names
    from mini_tf.scores import packages_of, require

    if classes is None:
        classes = recipe.objective.classes
    names = _names(command, recipe, classes)
    for compared in (metric for gate in gates for metric in gate.metrics):
        names_of_metric: Sequence[str] = metric_names(compared)
        if command == "training":
            names_of_metric = [_without_statistic(name, recipe, names) for name in names_of_metric]
        metric = next((name for name in names_of_metric if is_among(name, names)), None)
        if metric is None:
            raise _no_such_metric(compared, names_of_metric[0], command, recipe, names)
        if classes is not None:
            _check_class(compared, metric, classes, recipe)
        require(
            *packages_of(recipe.objective.pipeline(), [metric.removeprefix("val.")]),
            *_of_baselines(recipe).get(metric, ()),
        )


def _names(command: str, recipe: "Recipe", classes: Sequence[str] | None) -> list[str]:
    """All metrics of a command; a name that ends in a dot is completed by a class or entity type."""
    from mini_tf.recipe.corpora import sources_of
    from mini_tf.recipe.metrics import metrics_of

    if command in COMPLETED_BY:
        return [*_of_option(command)]
    excluded = {"loss"} if command == "predict" else set[str]()
    if command == "training" and not recipe.eval.translations:
        excluded |= _written(recipe)
    names = [name for name in metrics_of(recipe.objective, classes) if name not in excluded]
    sources = sources_of(recipe.data.train if recipe.data.val is None else recipe.data.val)
    of_sources = [name for name in ("loss", "bits_per_byte") if name in names and command != "predict"]
    names += [f"{name}.{source.label}" for source in sources for name in of_sources]
    of_baselines = _of_baselines(recipe) if command != "predict" else {}
    if command == "training":
        return [*(f"val.{name}" for name in names), "train.loss", "minutes", *of_baselines]
    return [*names, "targets", *of_baselines] if command == "evaluate" else names


def _of_option(option: str) -> tuple[str, ...]:
    """Metrics of `evaluate` with --pairs or --babylm."""
    from mini_tf.data.formats.babylm_files import METRICS as BABYLM_METRICS
    from mini_tf.scores.intervals import PAIR_METRICS

    return PAIR_METRICS if option == "pairs" else BABYLM_METRICS


def _of_baselines(recipe: "Recipe") -> "dict[str, list[str]]":
    """Metrics of baselines, with the packages needed; {} with `eval.baseline: false`."""
    from mini_tf.jobs.baselines import baseline_metrics

    return baseline_metrics(recipe.objective) if recipe.eval.baseline else {}


def _written(recipe: "Recipe") -> set[str]:
    """Metrics of generated texts."""
    pipeline = recipe.objective.pipeline()
    return set() if pipeline is None else {*pipeline.GENERATION_METRICS}


def _without_statistic(name: str, recipe: "Recipe", names: Sequence[str]) -> str:
    """val.accuracy for val.accuracy.mean; UsageFault for a single run. But a class may be called `mean`."""
    metric, dot, statistic = name.rpartition(".")
    if recipe.train.ensemble is not None and dot + statistic in OF_SEEDS:
        metric = metric.removesuffix(".ensemble")  # its statistics over folds
    if dot + statistic not in OF_SEEDS or not is_among(metric, names):
        return name
    if name.startswith("baseline."):  # it differs between folds, not between seeds
        return metric if recipe.data.split.is_set and statistic != "ensemble" else name
    if statistic == "ensemble" and recipe.train.ensemble is None and not is_among(name, names):
        raise UsageFault(
            f"--assert {name}: there is no ensemble",
            hint="train.ensemble=mean averages the predictions of several seeds",
        )
    if recipe.train.seeds > 1 or recipe.data.split.is_set:
        return metric
    if is_among(name, names):
        return name
    raise UsageFault(f"--assert {name}: {statistic} needs several seeds or folds", hint="train.seeds=5 trains several")


def is_among(metric: str, names: Sequence[str]) -> bool:
    """Whether a metric is one of `names`, or completes one that ends in a dot."""
    return any(metric.startswith(name) and metric != name if name.endswith(".") else metric == name for name in names)


def _no_such_metric(assertion: str, metric: str, command: str, recipe: "Recipe", names: Sequence[str]) -> UsageFault:
    from mini_tf.recipe.kinds import kinds_of
    from mini_tf.recipe.metrics import metrics_of
    from mini_tf.scores import COMMON_METRICS

    kind, bare = recipe.objective.kind, metric.removeprefix("val.")
    for option, value in (("pairs", "FILE.jsonl"), ("babylm", "DIR")):
        if command == "evaluate" and is_among(bare, _of_option(option)):
            return UsageFault(f"--assert {assertion}: needs --{option}", hint=f"add --{option} {value}")
    if bare in _written(recipe):
        return UsageFault(
            f"--assert {assertion}: eval.translations is 0: no text is generated", hint="remove eval.translations=0"
        )
    objectives: dict[str, Any] = {} if bare in COMMON_METRICS else kinds_of("objectives")
    others = [word for word, settings in objectives.items() if is_among(bare, metrics_of(settings))]
    listed = ", ".join(f"{name}{COMPLETED_BY.get(command, 'CLASS')}" if name.endswith(".") else name for name in names)
    hint = None
    if others and kind not in others:
        hint = f"it belongs to {' and '.join(others)}, and the objective is {kind}"
    if bare.startswith("baseline.") and not recipe.eval.baseline:
        hint = "eval.baseline is false: remove it"
    elif command == "predict" and bare.startswith("baseline."):
        hint = "`minitf evaluate RUN --data FILE` measures baselines"
    fault = f"--assert {assertion}: not a metric of {f'evaluate --{command}' if command in COMPLETED_BY else command}"
    if hint is None and (similar := _similar(metric, names)):
        return UsageFault(fault, hint=f"did you mean {similar}?")
    return UsageFault(f"{fault}; available: {listed}", hint=hint)


def _similar(metric: str, names: Sequence[str]) -> str | None:
    """The most similar metric, with the statistic of `metric`, and of the model if that is one; None if none is."""
    from mini_tf.system.errors import near

    ending, of_model = next((end for end in OF_SEEDS if metric.endswith(end)), ""), metric.startswith("val.")
    others = [name for name in names if not name.endswith(".") and not (of_model and name.startswith("baseline."))]
    similar = near(metric.removesuffix(ending), others)
    return similar and similar + ending


def _check_class(assertion: str, metric: str, classes: Sequence[str], recipe: "Recipe") -> None:
    """UsageFault if a metric names a class or entity type that does not exist."""
    kind, _, class_name = metric.removeprefix("val.").partition(".")
    pipeline = recipe.objective.pipeline()
    if pipeline is None or not class_name or f"{kind}." not in pipeline.METRICS:
        return
    if class_name not in (known := pipeline.classes_of(kind, classes)):
        raise UsageFault(
            f"--assert {assertion}: there is no class {class_name!r}", hint=f"there are: {', '.join(known[:20])}"
        )

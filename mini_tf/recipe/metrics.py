"""Names of the metrics of an objective, the one that decides which checkpoint is best, and gates on them."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt

from mini_tf.recipe.kind_settings.objectives import NATS_PER_TOKEN, ObjectiveSettings
from mini_tf.recipe.kinds import Rule, Rules
from mini_tf.recipe.sections import Eval
from mini_tf.recipe.values import show
from mini_tf.system.errors import RecipeFault, UsageFault, suggest

LOWER_IS_BETTER = ("loss", "perplexity", "bits_per_byte")
"""Metrics of every objective of which a lower value is better; pipelines declare theirs."""
MAIN = "main"
"""The word of `eval.best` for the pipeline's main metric."""


def metrics_of(
    objective: ObjectiveSettings | type[ObjectiveSettings], classes: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Names of the metrics of an evaluation; a name that ends in a dot is a prefix, followed by a class or entity type.

    classes: those of the run, if known.
    """
    n_of_tokens = 0 if objective.LOSS_UNIT != NATS_PER_TOKEN else 2 if "every_token" in objective.PREDICTS else 1
    pipeline = objective.pipeline()
    return (
        "loss",
        *("perplexity", "bits_per_byte")[:n_of_tokens],
        *objective.METRICS,
        *(() if pipeline is None else (*pipeline.metrics_for(classes), *pipeline.GENERATION_METRICS)),
    )


def ranking_metrics(objective: ObjectiveSettings) -> tuple[str, ...]:
    """The metrics that rank models, the first one available: larger is better, but for the loss, the last one."""
    pipeline = objective.pipeline()
    return (*(() if pipeline is None else pipeline.MAIN_METRICS), "loss")


def lower_is_better(objective: ObjectiveSettings) -> tuple[str, ...]:
    """Metrics of which a lower value is better, with their parts (loss.generator); of all others a higher one is."""
    pipeline = objective.pipeline()
    return (*LOWER_IS_BETTER, *(() if pipeline is None else pipeline.LOWER_IS_BETTER))


def is_lower_better(metric: str, names: Sequence[str]) -> bool:
    """Whether a metric (loss, val.loss, val.loss.generator) is one of `names`, or a part of one."""
    return metric.removeprefix("val.").removeprefix("train.").partition(".")[0] in names


@dataclass(frozen=True)
class BestMetric:
    """The metric that decides which checkpoint is the best. name: as `minitf evaluate` prints it, without `val.`.

    Checkpoints have a score, of which the lowest is the best: the metric, or its negative if higher is better.
    """

    name: str = "loss"
    lower_is_better: bool = True

    @property
    def sign(self) -> int:
        return 1 if self.lower_is_better else -1

    def score(self, metrics: Mapping[str, float]) -> float:
        """The score of an evaluation, whose metrics have the prefix `val.`; NaN if this one was not measured."""
        return self.sign * metrics.get(f"val.{self.name}", math.nan)

    def value(self, score: float) -> float:
        """The value of the metric at a score."""
        return self.sign * score


def best_metric(objective: ObjectiveSettings, settings: Eval, classes: Sequence[str] | None = None) -> BestMetric:
    """The metric of `eval.best`; RecipeFault if there is none. classes: names of the run's classes, if known."""
    name, lower = settings.best, lower_is_better(objective)
    if name == MAIN:
        known = _available(objective, settings, classes)
        name = next(metric for metric in ranking_metrics(objective) if metric in known)
    elif fault := _fault(name, objective, settings, classes, (MAIN,)):
        raise RecipeFault(f"eval.best: {fault}")
    return BestMetric(name, is_lower_better(name, lower))


def best_rules(objective: ObjectiveSettings, settings: Eval) -> Rules:
    """Broken if the objective has no such metric."""
    if settings.best != MAIN and (fault := _fault(settings.best, objective, settings, objective.classes, (MAIN,))):
        yield Rule("eval.best", fault, ("objective", "eval.translations"))


def _available(objective: ObjectiveSettings, settings: Eval, classes: Sequence[str] | None) -> list[str]:
    pipeline = objective.pipeline()
    without = () if settings.translations or pipeline is None else pipeline.GENERATION_METRICS
    return [name for name in metrics_of(objective, classes) if name not in without]


def _fault(
    metric: str,
    objective: ObjectiveSettings,
    settings: Eval,
    classes: Sequence[str] | None,
    further: Sequence[str] = (),
) -> str | None:
    """Why evaluations during training do not measure `metric`; None if they do. further: other words it may be."""
    known, (kind, _, class_name) = _available(objective, settings, classes), metric.partition(".")
    if metric in known:
        return None
    if f"{kind}." in known and class_name:
        pipeline = objective.pipeline()
        names = None if classes is None or pipeline is None else pipeline.classes_of(kind, classes)
        if names is None or class_name in names:
            return None
        return f"there is no class {show(class_name)}; there are: {', '.join(names[:20])}"
    if metric in metrics_of(objective, classes):
        return f"{metric} needs generated texts; use eval.translations above 0"
    words = [*further, *(f"{name}CLASS" if name.endswith(".") else name for name in known)]
    hint = suggest(metric, words, f"there are: {', '.join(words)}")
    return f"{objective.kind} has no metric {show(metric)}; {hint}"


_NAME = r"[A-Za-z_](?:[^<>=]*[^<>=\s])?"
_OTHER = r"[A-Za-z_][^<>=]*?"  # as short as possible, so that a number behind it is not part of the name
_UNSIGNED = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_GATE = re.compile(rf"\s*({_NAME})\s*(<=|>=|==|<|>)\s*(?:([-+]?{_UNSIGNED})|({_OTHER})\s*([-+]\s*{_UNSIGNED})?)\s*")
_NOT_FINITE = ("nan", "inf", "infinity")
_SIGNS: dict[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq}

Metrics = Mapping[str, float | None]


@dataclass(frozen=True)
class Gate:
    """`metric sign bound`, such as val.loss < 1.9 or f1.creative work > 0.3 (class names may contain spaces).

    With `other`, the bound is that metric plus `bound`, as in val.accuracy > baseline.accuracy - 0.005.
    """

    metric: str
    sign: str
    bound: float
    other: str | None = None

    @classmethod
    def parse(cls, text: str, source: str = "--assert") -> "Gate":
        """Parse `val.loss<1.9` or `val.loss<baseline.loss-0.1`; UsageFault if it is not a comparison."""
        if (
            (match := _GATE.fullmatch(text)) is None
            or not (match[3] or match[4])
            or str(match[4]).lower() in _NOT_FINITE
        ):
            hint = "write METRIC<NUMBER or METRIC<METRIC, such as 'val.loss<1.9'"
            raise UsageFault(f"{source} {text!r} is not a comparison", hint=hint)
        if match[3]:
            return cls(match[1], match[2], float(match[3]))
        return cls(match[1], match[2], float((match[5] or "0").replace(" ", "")), match[4])

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that it compares: one, or two."""
        return (self.metric,) if self.other is None else (self.metric, self.other)

    def failure(self, metrics: Metrics) -> str | None:
        """The failure message, or None if the gate passes; a missing metric or NaN always fails."""
        for name in self.metrics:
            if not any(spelling in metrics for spelling in metric_names(name)):
                return f"{name}: not measured; measured: {', '.join(sorted(metrics)) or 'nothing'}"
        value, other = _value(self.metric, metrics), 0.0 if self.other is None else _value(self.other, metrics)
        if None not in (value, other) and _SIGNS[self.sign](value, other + self.bound):  # type: ignore[arg-type,operator]
            return None
        bound = f"{self.bound:g}"
        if self.other is not None:
            bound = (
                f"{self.other}{f' {self.bound:+g}' if self.bound else ''}"
                f" ({'not measured' if other is None else f'{other:.6g}'})"
            )
        return (
            f"{self.metric} {'was not measured' if value is None else f'is {value:.6g}'}, but must be {self.sign}"
            f" {bound}"
        )


def until_gate(settings: Eval) -> Gate | None:
    """The bound of `eval.until`."""
    return None if settings.until is None else Gate.parse(settings.until, "eval.until")


def until_rules(objective: ObjectiveSettings, settings: Eval) -> Rules:
    """Broken if no evaluation during training measures what `eval.until` compares."""
    try:
        gate = until_gate(settings)
    except UsageFault:
        yield Rule("eval.until", f"must be a comparison such as val.loss<1.9, got {show(settings.until)}")
        return
    for metric in () if gate is None else gate.metrics:
        name = metric.removeprefix("val.")
        if metric != "train.loss" and (fault := _fault(name, objective, settings, objective.classes)):
            yield Rule("eval.until", fault, ("objective", "eval.translations"))
    if gate is not None and settings.every_steps is None:
        message = "is compared at evaluations, but there is only one, after the last step; use another eval.every_steps"
        yield Rule("eval.until", message, ("eval.every_steps",))


def metric_names(metric: str) -> tuple[str, str]:
    """The names of a metric: `val.loss` in training is `loss` in evaluation."""
    return metric, metric.removeprefix("val.") if metric.startswith("val.") else f"val.{metric}"


def _value(metric: str, metrics: Metrics) -> float | None:
    return next(metrics[name] for name in metric_names(metric) if name in metrics)


def failures(gates: Iterable[Gate], metrics: Metrics) -> list[str]:
    """One line per failed gate."""
    return [line for gate in gates if (line := gate.failure(metrics)) is not None]

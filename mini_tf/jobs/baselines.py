"""Baselines of a model: measured once for the same data, and compared with the model's metrics."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mini_tf.baselines import BaselineData, BaselineSettings, Measured, NoBaseline
from mini_tf.data.describing import n_shared_documents
from mini_tf.data.examples import Labels
from mini_tf.data.packing import Packing
from mini_tf.data.store import Store
from mini_tf.jobs.parts import Parts
from mini_tf.objectives import Objective
from mini_tf.recipe.kind_settings.objectives import ObjectiveSettings
from mini_tf.recipe.kinds import cache_identity, settings_of
from mini_tf.recipe.metrics import metrics_of, ranking_metrics
from mini_tf.recipe.recipe import Recipe
from mini_tf.scores import INSTALL, missing, version
from mini_tf.system.cache import build_or_load, hash_of
from mini_tf.system.errors import DataFault, MinitfError, RunFault
from mini_tf.system.progress import show_progress
from mini_tf.trained.evaluating import run_data
from mini_tf.trained.opening import Trained
from mini_tf.training.evaluation import pack

FORMAT = 2
PREFIX = "baseline."
NAME = f"{PREFIX}name"
Metrics = Mapping[str, float | None]


@dataclass(frozen=True)
class Baselines:
    """The metrics of baselines by kind. ranking: metrics that rank them, the first one that the model has too."""

    measured: Mapping[str, Measured] = field(default_factory=dict)
    ranking: tuple[str, ...] = ("loss",)
    notes: tuple[str, ...] = ()

    def metrics(self, model: Metrics) -> dict[str, float]:
        """`baseline.METRIC` of the best baseline that has the metric, and `baseline.KIND.METRIC` of each.

        model: the model's metrics, which the names follow.
        """
        of_best: dict[str, float] = {}
        for kind in self._best_first(model):
            of_best = {f"{PREFIX}{name}": value for name, value in self.measured[kind].metrics.items()} | of_best
        ranks, each = {*self.ranking, "bits_per_byte"}, dict[str, float]()
        for kind, measured in self.measured.items():
            each |= {f"{PREFIX}{kind}.{name}": value for name, value in measured.metrics.items() if name in ranks}
        return of_best | each

    def name(self, model: Metrics) -> str | None:
        """The name of the best baseline; None if there is none."""
        return next((self.measured[kind].name for kind in self._best_first(model)), None)

    def lines(self, model: Metrics) -> Iterator[str]:
        """The best baseline beside the model, then the others, and why some were not measured."""
        kinds = self._best_first(model)
        for kind in kinds[:1]:
            measured, metric = self.measured[kind], self._metric(model, kind)
            comparison = verdict(measured.name, metric, measured.metrics[metric], _of_model(model, metric))
            yield f"baseline: {comparison}{_in_brackets(measured.note)}"
        if kinds[1:]:
            yield f"further baselines: {'; '.join(self._short(model, kind) for kind in kinds[1:])}"
        yield from self.notes

    def _short(self, model: Metrics, kind: str) -> str:
        measured, metric = self.measured[kind], self._metric(model, kind)
        return f"{measured.name}, {metric} {measured.metrics[metric]:.4f}{_in_brackets(measured.note)}"

    def _metric(self, model: Metrics, kind: str) -> str:
        """The metric by which a baseline is compared with the model; bits per byte rank like the loss, but say more."""
        measured = self.measured[kind].metrics
        metric = next((name for name in self.ranking if name in measured and _has(model, name)), next(iter(measured)))
        is_loss = metric == self.ranking[-1]
        return "bits_per_byte" if is_loss and "bits_per_byte" in measured and _has(model, "bits_per_byte") else metric

    def _best_first(self, model: Metrics) -> list[str]:
        """The kinds with a metric of the model: by the first ranking metric that any has, then those without it."""
        shared = {kind: [n for n in measured.metrics if _has(model, n)] for kind, measured in self.measured.items()}
        kinds = [kind for kind, names in shared.items() if names]
        known = {name for names in shared.values() for name in names}
        metric = next((name for name in self.ranking if name in known), "")

        def rank(kind: str) -> tuple[bool, float]:
            value = self.measured[kind].metrics.get(metric)
            return value is None, 0.0 if value is None else value if _smaller_is_better(metric) else -value

        return sorted(kinds, key=rank)


def verdict(name: str, metric: str, baseline: float, model: float | None, whose: str = "the model") -> str:
    """A baseline beside the model, and whether the model does not beat it. whose: what has the value `model`."""
    better = model is not None and (model < baseline if _smaller_is_better(metric) else model > baseline)
    shown = "not finite" if model is None else f"{model:.4f}"
    return f"{name} has {metric} {baseline:.4f} ({whose}: {shown})" + ("" if better else f": {whose} does not beat it")


def measure_baselines(
    recipe: Recipe,
    objective: Objective,
    train: Store,
    val: Packing,
    labels: Labels | None,
    check: Callable[[], None] = lambda: None,
) -> Baselines:
    """Measure the baselines that the objective names, or read them from the cache; {} with `eval.baseline: false`.

    train: the training split of the model; val: the rows that it is evaluated on. check: called now and then; an
    exception from it ends the work.
    """
    settings = recipe.objective
    if not recipe.eval.baseline:
        return Baselines()
    data = BaselineData(
        settings.dataset(), train, val, objective.prepare_evaluation, labels, "every_token" in settings.PREDICTS, check
    )
    measured, notes, absent = dict[str, Measured](), list[str](), dict[str, list[str]]()
    for kind in settings.BASELINES:
        baseline: Any = settings_of("baselines", kind)()
        if packages := missing(*baseline.REQUIRES):
            absent.setdefault(" and ".join(packages), []).append(kind)
            continue
        check()
        try:
            measured[kind] = _cached(baseline, data, recipe)
        except (NoBaseline, OSError, MemoryError, MinitfError) as reason:  # which must not lose a trained model
            notes.append(f"no baseline {kind}: {reason or type(reason).__name__}")
    for names, kinds in absent.items():
        notes.append(f"no baseline {', '.join(kinds)}: {names} is not installed: {INSTALL}")
    return Baselines(measured, ranking_metrics(settings), tuple(notes))


def baseline_metrics(objective: ObjectiveSettings) -> dict[str, list[str]]:
    """The names that `Baselines.metrics` may have, of the best baseline and of each kind, with the packages needed.

    The best one is known only if all baselines with this metric can be measured.
    """
    known, ranks = metrics_of(objective), {*ranking_metrics(objective), "bits_per_byte"}
    requires = dict[str, list[str]]()
    for kind in objective.BASELINES:
        baseline: Any = settings_of("baselines", kind)
        for name in (name for name in baseline.METRICS if name in known):
            requires.setdefault(f"{PREFIX}{name}", []).extend(baseline.REQUIRES)
            if name in ranks:
                requires[f"{PREFIX}{kind}.{name}"] = [*baseline.REQUIRES]
    return dict(sorted(requires.items(), key=lambda item: item[0].count(".")))


def baselines_of(parts: Parts, check: Callable[[], None]) -> Baselines:
    """The baselines of a run in training."""
    return measure_baselines(parts.recipe, parts.objective, parts.data.train, parts.val, parts.labels, check)


def baselines_of_trained(trained: Trained, store: Store, note: Callable[[str], None] = lambda line: None) -> Baselines:
    """The baselines of a trained model on `store`, fitted on its own training data. note: says how these are read."""
    if not trained.recipe.eval.baseline or not trained.recipe.objective.BASELINES:
        return Baselines()
    try:
        run_stores = run_data(trained, note)
    except (DataFault, RunFault) as fault:
        return Baselines(notes=(f"no baselines: {fault.message}",))
    val = pack(trained.recipe, store, trained.tokenizer, trained.objective)
    measured = measure_baselines(trained.recipe, trained.objective, run_stores["train"], val, trained.labels)
    return replace(measured, notes=(*measured.notes, *_seen_in_training(run_stores, store)))


SAME_BEGINNING = 128
"""Tokens; documents that have so many in common from the first one on are the same, one of them perhaps cut."""


def _seen_in_training(run_stores: Mapping[str, Store], store: Store) -> Iterator[str]:
    """A note if other data than the run's own validation data have documents of its training data."""
    if store.path != run_stores["val"].path and (n := n_shared_documents(run_stores["train"], store, SAME_BEGINNING)):
        message = f"{n:,} of {store.n_documents:,} of these documents are also in the training data"
        yield f"{message}: metrics of the model, and more so of the baselines, are too good on them"


def _cached(baseline: BaselineSettings, data: BaselineData, recipe: Recipe) -> Measured:
    """What a baseline measures, from the cache or now."""

    def measure() -> Measured:
        with show_progress(f"measuring the baseline {baseline.kind}"):
            return baseline.measure(data)

    if data.train.path is None or data.val.store.path is None:
        return measure()
    stores = [_identity(path) for path in (data.train.path, data.val.store.path)]
    rows = [data.val.shape.context, data.val.shape.pack]
    packages = {package: version(package) for package in baseline.REQUIRES}
    kind = [cache_identity(baseline), baseline.VERSION, packages]
    key = hash_of([FORMAT, kind, stores, rows, recipe.objective.kind, recipe.objective.model_dump(mode="json")])
    facts = build_or_load("baselines", key, lambda folder: measure()._asdict()).facts
    return Measured(**facts)


def _identity(path: Path) -> str:
    """A store's folder in the cache is named by a hash of the data and the tokenizers."""
    return f"{path.parent.name}/{path.stem}"


def _smaller_is_better(metric: str) -> bool:
    return metric in ("loss", "bits_per_byte")


def _has(model: Metrics, name: str) -> bool:
    return name in model or f"val.{name}" in model


def _of_model(model: Metrics, name: str) -> float | None:
    return model.get(f"val.{name}", model.get(name))


def _in_brackets(note: str) -> str:
    return f" ({note})" if note else ""

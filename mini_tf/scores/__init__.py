"""Metrics of predictions, one file per type of task: from labels or texts to floats by name.

Most metrics come from optional packages. Without these `class_scores`, `number_scores` and `entity_scores` return only
accuracy or rmse; `corpus_scores` and `summary_scores` raise Unavailable. `missing_warning` is the warning for a
caller that continues without them; `require` raises for a caller that needs them.
"""

from collections.abc import Iterable, Mapping

from mini_tf.recipe.kind_settings.pipelines import PipelineSettings
from mini_tf.system.errors import Unavailable

PACKAGES = {
    "rouge-score": "ROUGE",
    "sacrebleu": "BLEU and chrF",
    "scikit-learn": "F1, Matthews, Pearson and Spearman",
    "seqeval": "entity F1",
}
"""Packages of the extra `scores`, and the metrics of each."""
_F1, _ENTITIES = ("scikit-learn",), ("scikit-learn", "seqeval")
TEXT_METRICS = {
    **dict.fromkeys(("bleu", "chrf", "exact_match"), ("sacrebleu",)),
    **dict.fromkeys(("rouge1", "rouge2", "rougeL"), ("rouge-score",)),
}
"""Metrics of generated texts, from references; each with the packages it needs, as below."""
ENTITY_METRICS = dict.fromkeys(("entity_f1", "entity_f1.", "entity_precision", "entity_recall"), _ENTITIES)
"""Metrics of tags that mark entities; other tags have f1_macro instead."""
CLASS_METRICS = {"accuracy": (), **dict.fromkeys(("f1_macro", "f1_micro", "f1.", "matthews"), _F1)}
LABEL_SET_METRICS = {"subset_accuracy": (), **dict.fromkeys(("f1_macro", "f1_micro", "f1."), _F1)}
REGRESSION_METRICS = {"pearson": _F1, "spearman": _F1, "rmse": ()}
SIMILARITY_METRICS = {"spearman": _F1, "retrieval_accuracy": ()}
TAG_METRICS = {"accuracy": (), "f1_macro": _F1} | ENTITY_METRICS
COMMON_METRICS = ("loss", "perplexity", "bits_per_byte", "accuracy")
"""Metrics that several objectives share."""


def packages_of(pipeline: PipelineSettings | None, metrics: Iterable[str]) -> tuple[str, ...]:
    """Packages that these metrics need. Metrics of the pipeline may need some; metrics of the objective need none."""
    known = {} if pipeline is None else {**pipeline.METRICS, **pipeline.GENERATION_METRICS}
    needed = {package for name in metrics for package in known.get(name, known.get(f"{name.partition('.')[0]}.", ()))}
    return tuple(package for package in PACKAGES if package in needed)


INSTALL = "pip install 'minitf[scores]'"


def require(*packages: str) -> None:
    """Raise Unavailable if one of `packages` (keys of PACKAGES) is not installed."""
    if absent := missing(*packages):
        raise Unavailable("; ".join(f"{_needing(package)} {package}" for package in absent), hint=INSTALL)


def available(*packages: str) -> bool:
    return not missing(*packages)


def can_measure(metrics: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether at least one of these metrics (`PipelineSettings.GENERATION_METRICS`) has its packages installed."""
    return any(available(*packages) for packages in metrics.values())


def missing(*packages: str) -> list[str]:
    """Those of `packages` that are not installed."""
    return [package for package in packages if version(package) is None]


def missing_warning(*packages: str) -> str:
    """A warning that names missing packages and metrics; "" if all are installed."""
    if not (absent := missing(*packages)):
        return ""
    named = " and ".join(absent)
    metrics = ", ".join(PACKAGES[package] for package in absent)
    return f"{named} {'is' if len(absent) == 1 else 'are'} not installed, so there is no {metrics}: {INSTALL}"


def _needing(package: str) -> str:
    metrics = PACKAGES[package]
    return f"{metrics} {'need' if ' and ' in metrics else 'needs'}"


def version(package: str) -> str | None:
    """The installed version of a package; None if it is missing, "" if unknown."""
    # Literal imports only: no module is imported by a name in a variable.
    try:
        match package:
            case "sacrebleu":
                import sacrebleu

                return str(sacrebleu.__version__)
            case "rouge-score":
                import rouge_score  # noqa: F401

                return ""
            case "scikit-learn":
                import sklearn

                return str(sklearn.__version__)
            case "seqeval":
                import seqeval  # noqa: F401

                return ""
    except ImportError:
        return None
    raise ValueError(f"package: {package!r} must be one of {', '.join(PACKAGES)}")

"""Metrics of predictions, one file per kind of task; floats by name, from numbers and words alone.

They use packages that a base install lacks. Without these, `class_scores`, `number_scores` and `entity_scores` return
only accuracy or rmse, so training continues, and `corpus_scores` and `summary_scores` raise Unavailable. `left_out`
reports missing metrics; `require` checks for a requested one.
"""

from collections.abc import Iterable, Mapping, Sequence

from mini_tf.recipe.kind_settings import ObjectiveSettings, PipelineSettings
from mini_tf.system.errors import Unavailable

PACKAGES = {
    "rouge-score": "ROUGE",
    "sacrebleu": "BLEU and chrF",
    "scikit-learn": "F1, Matthews, Pearson and Spearman",
    "seqeval": "entity F1",
}
"""What the extra `scores` installs, and its metrics."""
_F1, _ENTITIES = ("scikit-learn",), ("scikit-learn", "seqeval")
OF_TEXTS = {
    **dict.fromkeys(("bleu", "chrf", "exact_match"), ("sacrebleu",)),
    **dict.fromkeys(("rouge1", "rouge2", "rougeL"), ("rouge-score",)),
}
"""Metrics of generated texts with references."""
OF_ENTITIES = dict.fromkeys(("entity_f1", "entity_f1.", "entity_precision", "entity_recall"), _ENTITIES)
"""Metrics of entity tags; other tags have f1_macro instead."""
OF_CLASSES = {"accuracy": (), **dict.fromkeys(("f1_macro", "f1_micro", "f1.", "matthews"), _F1)}
OF_NUMBERS = {"pearson": _F1, "spearman": _F1, "rmse": ()}
OF_TAGS = {"accuracy": (), "f1_macro": _F1} | OF_ENTITIES
COMMON = ("loss", "perplexity", "bits_per_byte", "accuracy")
"""Metrics of several kinds of objectives."""


def figures_of(objective: ObjectiveSettings | type[ObjectiveSettings], classes: Sequence[str] | None = None) -> tuple[str, ...]:
    """Metrics of an evaluation with these classes, if known; a name that ends in a dot is completed by a class or type."""
    of_tokens = ("perplexity", "bits_per_byte")[: 1 + objective.EVERY_TOKEN] if objective.TOKEN_LOSS is not None else ()
    pipeline = objective.pipeline()
    return ("loss", *of_tokens, *objective.METRICS, *(() if pipeline is None else (*pipeline.figures(classes), *pipeline.WRITTEN)))


def packages_of(pipeline: PipelineSettings | None, figures: Iterable[str]) -> tuple[str, ...]:
    """Packages that one of these metrics needs."""
    known = {} if pipeline is None else {**pipeline.FIGURES, **pipeline.WRITTEN}
    needed = {package for name in figures for package in known.get(name, known.get(f"{name.partition('.')[0]}.", ()))}
    return tuple(package for package in PACKAGES if package in needed)


INSTALL = "pip install 'minitf[scores]'"


def require(*packages: str) -> None:
    """Unavailable if one of `packages` (of PACKAGES) is missing."""
    if lacking := missing(*packages):
        raise Unavailable("; ".join(f"{_figures(package)} {package}" for package in lacking), hint=INSTALL)


def available(*packages: str) -> bool:
    """Whether all of `packages` are installed."""
    return not missing(*packages)


def can_measure(figures: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether the packages of at least one metric are installed."""
    return any(available(*packages) for packages in figures.values())


def missing(*packages: str) -> list[str]:
    """Those of `packages` that are not installed."""
    return [package for package in packages if version(package) is None]


def left_out(*packages: str) -> str:
    """A sentence about missing metrics; "" if none is missing."""
    if not (lacking := missing(*packages)):
        return ""
    named = " and ".join(lacking)
    figures = ", ".join(PACKAGES[package] for package in lacking)
    return f"{named} {'is' if len(lacking) == 1 else 'are'} not installed, so {figures} are not computed: {INSTALL}"


def _figures(package: str) -> str:
    spoken = PACKAGES[package]
    return f"{spoken} {'need' if ' and ' in spoken else 'needs'}"


def version(package: str) -> str | None:
    """The version of a package; None if it is missing, "" if unknown. Imports are literal."""
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

"""How good predictions are, a file for each kind of task; floats by name, from numbers and words alone.

The figures come from well-kept packages that a base install lacks. What is trivial is given without them, so that training goes on:
`class_scores`, `number_scores` and `entity_scores` then return accuracy or rmse alone, `corpus_scores` and `summary_scores` raise
Unavailable. Who goes without them says so (`left_out`); who promised a figure asks first (`require`).
"""

from mini_tf.errors import Unavailable

PACKAGES = {
    "sacrebleu": "BLEU and chrF",
    "rouge-score": "ROUGE",
    "scikit-learn": "F1, Matthews, Pearson and Spearman",
    "seqeval": "entity F1",
}
"""What the extra `scores` installs, and which figures each is for."""
NEEDED: dict[str, tuple[str, ...]] = {
    "pairs": ("rouge-score", "sacrebleu"),
    "turns": ("rouge-score", "sacrebleu"),
    "classes": ("scikit-learn",),
    "numbers": ("scikit-learn",),
    "tags": ("scikit-learn", "seqeval"),
}
"""By the form of data that an objective reads: the packages that make its figures."""
INSTALL = "pip install 'minitf[scores]'"


def require(*packages: str) -> None:
    """Unavailable where one of `packages` (of PACKAGES) is missing."""
    if lacking := missing(*packages):
        raise Unavailable("; ".join(f"{_figures(package)} {package}" for package in lacking), hint=INSTALL)


def available(*packages: str) -> bool:
    """Whether all of `packages` are here."""
    return not missing(*packages)


def missing(*packages: str) -> list[str]:
    """Those of `packages` that are not here."""
    return [package for package in packages if version(package) is None]


def left_out(*packages: str) -> str:
    """The sentence for a run that goes on without some of `packages`; "" where none is missing."""
    if not (lacking := missing(*packages)):
        return ""
    named = " and ".join(lacking)
    figures = ", ".join(PACKAGES[package] for package in lacking)
    return f"{named} {'is' if len(lacking) == 1 else 'are'} not installed, so there is no {figures}: {INSTALL}"


def _figures(package: str) -> str:
    return f"{PACKAGES[package]} {'need' if ' and ' in PACKAGES[package] else 'needs'}"


def version(package: str) -> str | None:
    """None where the package is missing; "" where it does not tell its version. Nothing is imported by a word: the imports stand here."""
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

"""How near translations come to their references: BLEU, chrF and exact match over a whole corpus.

BLEU and chrF are sacrebleu's with its defaults, on detokenised and cased text, so that they compare with what others publish.
Sources: Papineni et al. 2002; Popović 2015; Post 2018, arXiv:1804.08771.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mini_tf.errors import Unavailable

if TYPE_CHECKING:
    from sacrebleu import BLEU, CHRF


def require() -> None:
    """Unavailable where sacrebleu is missing."""
    try:
        import sacrebleu  # noqa: F401
    except ImportError:
        raise Unavailable("BLEU and chrF need sacrebleu", hint="pip install 'minitf[scores]'") from None


def available() -> bool:
    """Whether BLEU and chrF can be computed here."""
    try:
        require()
    except Unavailable:
        return False
    return True


def corpus_scores(translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """bleu and chrf (0-100), and exact_match, the share that is equal to its reference to the letter (0-1).

    translations[i] is compared with references[i]. ValueError where there are none, or not as many of one as of the other;
    Unavailable where sacrebleu is missing.
    """
    if len(translations) != len(references):
        raise ValueError(f"translations and references must be as many: {len(translations)} != {len(references)}")
    if not translations:
        raise ValueError("there must be a translation")
    scores = {name: float(metric.corpus_score(list(translations), None).score) for name, metric in _metrics(references).items()}
    equal = sum(ours == theirs for ours, theirs in zip(translations, references, strict=True))
    return scores | {"exact_match": equal / len(references)}


def signatures() -> dict[str, str]:
    """How bleu and chrf were computed, as sacrebleu writes it, which is published beside them."""
    return {name: metric.get_signature().format() for name, metric in _metrics([""]).items()}


def _metrics(references: Sequence[str]) -> "dict[str, BLEU | CHRF]":
    require()
    from sacrebleu import BLEU, CHRF

    # `force` changes no figure: sacrebleu then logs no warning, to stderr, of what looks tokenised.
    return {"bleu": BLEU(force=True, references=[list(references)]), "chrf": CHRF(references=[list(references)])}

"""How near translations come to their references: BLEU, chrF and exact match over a whole corpus.

BLEU and chrF are sacrebleu's with its defaults, on detokenised and cased text, so that they compare with what others publish.
Sources: Papineni et al. 2002; Popović 2015; Post 2018, arXiv:1804.08771.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mini_tf.scores import require
from mini_tf.scores.references import alternatives

if TYPE_CHECKING:
    from sacrebleu import BLEU, CHRF


def corpus_scores(translations: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]) -> dict[str, float]:
    """bleu and chrf (0-100), and exact_match, the share that is equal to its reference to the letter (0-1).

    translations[i] is compared with references[i]; of several references BLEU counts the n-grams of all, chrF takes the nearest, and
    an exact match is equal to any. ValueError where there are none, or not as many of one as of the other; Unavailable where sacrebleu
    is missing.
    """
    each = alternatives(translations, references)
    scores = {name: float(metric.corpus_score(list(translations), None).score) for name, metric in _metrics(each).items()}
    return scores | {"exact_match": sum(ours in theirs for ours, theirs in zip(translations, each, strict=True)) / len(each)}


def signatures(references: Sequence[str] | Sequence[Sequence[str]] = ("",)) -> dict[str, str]:
    """How bleu and chrf were computed, as sacrebleu writes it, which is published beside them; it counts the references of a text."""
    return {name: metric.get_signature().format() for name, metric in _metrics(alternatives([""] * len(references), references)).items()}


def _metrics(references: Sequence[Sequence[str]]) -> "dict[str, BLEU | CHRF]":
    require("sacrebleu")
    from sacrebleu import BLEU, CHRF

    # sacrebleu takes the first reference of every text, then the second, and so on; None where a text has no more.
    most = max(map(len, references))
    streams: Any = [[theirs[place] if place < len(theirs) else None for theirs in references] for place in range(most)]
    # `force` changes no figure: sacrebleu then logs no warning, to stderr, of what looks tokenised.
    return {"bleu": BLEU(force=True, references=streams), "chrf": CHRF(references=streams)}

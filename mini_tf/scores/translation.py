"""Translation metrics: BLEU, chrF and exact match over a corpus.

BLEU and chrF are sacrebleu's with its defaults, on detokenized, cased text, comparable with published results.
Sources: Papineni et al. 2002; Popović 2015; Post 2018, arXiv:1804.08771.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mini_tf.scores import require
from mini_tf.scores.references import alternatives

if TYPE_CHECKING:
    from sacrebleu import BLEU, CHRF


def corpus_scores(translations: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]) -> dict[str, float]:
    """bleu and chrf (0-100), and exact_match, the share of translations equal to a reference (0-1).

    translations[i] is compared with references[i]; with several references BLEU counts the n-grams of all, chrF takes
    the nearest, exact match any. ValueError if there are none or lengths differ; Unavailable without sacrebleu.
    """
    each = alternatives(translations, references)
    scores = {name: float(metric.corpus_score(list(translations), None).score) for name, metric in _metrics(each).items()}
    return scores | {"exact_match": sum(ours in theirs for ours, theirs in zip(translations, each, strict=True)) / len(each)}


def signatures(references: Sequence[str] | Sequence[Sequence[str]] = ("",)) -> dict[str, str]:
    """The signatures of bleu and chrf by sacrebleu, which are published beside them."""
    return {name: metric.get_signature().format() for name, metric in _metrics(alternatives([""] * len(references), references)).items()}


def _metrics(references: Sequence[Sequence[str]]) -> "dict[str, BLEU | CHRF]":
    require("sacrebleu")
    from sacrebleu import BLEU, CHRF

    # sacrebleu takes the first references of all texts, then the second ones, and so on; None for a missing one.
    most = max(map(len, references))
    streams: Any = [[theirs[place] if place < len(theirs) else None for theirs in references] for place in range(most)]
    # `force` changes no metric; it silences a warning about tokenized-looking text.
    return {"bleu": BLEU(force=True, references=streams), "chrf": CHRF(references=streams)}

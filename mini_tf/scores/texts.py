"""Metrics of generated texts against references, from all installed packages."""

from collections.abc import Iterable, Sequence

from mini_tf.scores import available, summary, translation
from mini_tf.scores.summary import summary_scores
from mini_tf.scores.translation import corpus_scores


def text_scores(pairs: Iterable[tuple[str, Sequence[str]]]) -> dict[str, float]:
    """Metrics of (generated text, references) pairs.

    rouge1, rouge2, rougeL and exact_match (0-1), bleu and chrf (0-100); metrics without their package are missing.
    """
    texts, references = zip(*pairs, strict=True)
    rouge = summary_scores(texts, references) if available("rouge-score") else {}
    return rouge | (corpus_scores(texts, references) if available("sacrebleu") else {})


def zero_notes(pairs: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """Why metrics of (generated text, references) pairs are 0 by their definition, whatever the texts are."""
    texts, references = zip(*pairs, strict=True)
    rouge = summary.why_zero(references) if available("rouge-score") else ""
    bleu = translation.why_zero(texts, references) if available("sacrebleu") else ""
    return [*filter(None, (rouge, bleu))]

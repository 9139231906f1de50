"""Metrics of generated texts against references, from all installed packages."""

from collections.abc import Iterable, Sequence

from mini_tf.scores import available
from mini_tf.scores.summary import summary_scores
from mini_tf.scores.translation import corpus_scores


def text_scores(pairs: Iterable[tuple[str, Sequence[str]]]) -> dict[str, float]:
    """Metrics of (generated text, references) pairs.

    rouge1, rouge2, rougeL and exact_match (0-1), bleu and chrf (0-100); metrics without their package are missing.
    """
    texts, references = zip(*pairs, strict=True)
    rouge = summary_scores(texts, references) if available("rouge-score") else {}
    return rouge | (corpus_scores(texts, references) if available("sacrebleu") else {})

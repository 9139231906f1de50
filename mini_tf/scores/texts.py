"""Texts that a model writes, beside those that people wrote: how near they come, by all packages that are here."""

from collections.abc import Iterable, Sequence

from mini_tf.scores import available
from mini_tf.scores.summary import summary_scores
from mini_tf.scores.translation import corpus_scores


def text_scores(written: Iterable[tuple[str, Sequence[str]]]) -> dict[str, float]:
    """Figures of texts, each held to all its references.

    rouge1, rouge2, rougeL and exact_match (0 to 1), bleu and chrf (0 to 100); those whose package is missing are left out.
    """
    texts, references = zip(*written, strict=True)
    rouge = summary_scores(texts, references) if available("rouge-score") else {}
    return rouge | (corpus_scores(texts, references) if available("sacrebleu") else {})

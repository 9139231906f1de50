"""Metrics of summaries: ROUGE-1, ROUGE-2 and ROUGE-L.

Computed by rouge-score, which equals ROUGE-1.5.5 with option -m: words are runs of a-z and 0-9 in lower case (so
English only), with Porter's stemmer. Source: Lin 2004, ROUGE: a package for automatic evaluation of summaries.
"""

from collections.abc import Sequence

from mini_tf.scores import require
from mini_tf.scores.references import reference_lists

_KINDS = ("rouge1", "rouge2", "rougeL")


def summary_scores(summaries: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]) -> dict[str, float]:
    """rouge1, rouge2 and rougeL: F-measures (0-1), averaged over the texts.

    With several references of a text each metric takes the best one, as rouge-score does and as published for SciTLDR
    (Cachola et al. 2020, arXiv:2004.15011), without Lin's jackknife. Raises ValueError as `reference_lists`;
    Unavailable without rouge-score.
    """
    each = reference_lists(summaries, references)
    require("rouge-score")
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenizers import DefaultTokenizer

    # With an explicit tokenizer rouge-score logs nothing, so it adds no handler to the root logger.
    scorer = RougeScorer(_KINDS, tokenizer=DefaultTokenizer(use_stemmer=True))
    scores = [scorer.score_multi(own_references, summary) for summary, own_references in zip(summaries, each, strict=True)]
    return {kind: sum(float(one[kind].fmeasure) for one in scores) / len(scores) for kind in _KINDS}

"""ROUGE-1, ROUGE-2 and ROUGE-L of generated texts.

By the package rouge-score, equal to ROUGE-1.5.5 with option -m: words are runs of a-z and 0-9 in lower case (for
English), with Porter's stemmer. Source: Lin 2004, ROUGE: a package for automatic evaluation of summaries.
"""

from collections.abc import Sequence

from mini_tf.scores import require
from mini_tf.scores.references import alternatives

_KINDS = ("rouge1", "rouge2", "rougeL")


def summary_scores(summaries: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]) -> dict[str, float]:
    """rouge1, rouge2 and rougeL: F-measures (0-1), means over the texts.

    Of several references each metric takes the best, as published for SciTLDR and others (Cachola et al. 2020,
    arXiv:2004.15011) and as rouge-score does, not Lin's jackknife. ValueError as in `alternatives`; Unavailable without
    rouge-score.
    """
    each = alternatives(summaries, references)
    require("rouge-score")
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenizers import DefaultTokenizer

    # Given a tokenizer, rouge-score logs nothing, and so adds no handler to the root logger.
    scorer = RougeScorer(_KINDS, tokenizer=DefaultTokenizer(use_stemmer=True))
    found = [scorer.score_multi(theirs, ours) for ours, theirs in zip(summaries, each, strict=True)]
    return {kind: sum(float(one[kind].fmeasure) for one in found) / len(found) for kind in _KINDS}

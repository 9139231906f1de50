"""How much of a summary's words, pairs of words and order stand in its reference: ROUGE-1, ROUGE-2 and ROUGE-L.

By the package rouge-score, which gives what the original ROUGE-1.5.5 does with its option -m: words are runs of a-z and 0-9 in lower
case (so it is for English), and Porter's stemmer joins "trains" and "training". Source: Lin 2004, ROUGE: a package for automatic
evaluation of summaries.
"""

from collections.abc import Sequence

from mini_tf.scores import require
from mini_tf.scores.references import alternatives

_KINDS = ("rouge1", "rouge2", "rougeL")


def summary_scores(summaries: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]) -> dict[str, float]:
    """rouge1, rouge2 and rougeL: F-measures (0-1), each the mean over the texts.

    Of several references of a text each figure takes the best one, as published for SciTLDR and others (Cachola et al. 2020,
    arXiv:2004.15011) and as rouge-score does; Lin's jackknife is not used. ValueError as in `alternatives`; Unavailable where
    rouge-score is missing.
    """
    each = alternatives(summaries, references)
    require("rouge-score")
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenizers import DefaultTokenizer

    # Told which tokenizer, rouge-score logs none, and so hangs no handler on the root of all loggers.
    scorer = RougeScorer(_KINDS, tokenizer=DefaultTokenizer(use_stemmer=True))
    found = [scorer.score_multi(theirs, ours) for ours, theirs in zip(summaries, each, strict=True)]
    return {kind: sum(float(one[kind].fmeasure) for one in found) / len(found) for kind in _KINDS}

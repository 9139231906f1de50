"""Metrics of summaries: ROUGE-1, ROUGE-2 and ROUGE-L.

Computed by rouge-score, which equals ROUGE-1.5.5 with option -m: words are runs of a-z and 0-9 in lower case, with
Porter's stemmer. Words with other letters, which rouge-score drops, are those of `scripts.words_of`, without a stemmer.
Source: Lin 2004, ROUGE: a package for automatic evaluation of summaries.
"""

from collections.abc import Sequence

from mini_tf.scores import require
from mini_tf.scores.references import reference_lists
from mini_tf.scores.scripts import words_of

_KINDS = ("rouge1", "rouge2", "rougeL")


def why_zero(references: Sequence[str] | Sequence[Sequence[str]]) -> str:
    """Why ROUGE is 0 where references have no words, such as emoji alone; "" if all have some."""
    each = [[one] if isinstance(one, str) else one for one in references]
    n = sum(not any(words_of(one) for one in texts) for texts in each)
    return f"rouge is 0 for {n:,} of {len(each):,} texts, whose references have no letters or digits" if n else ""


def summary_scores(summaries: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]) -> dict[str, float]:
    """rouge1, rouge2 and rougeL: F-measures (0-1), averaged over the texts.

    With several references of a text each metric takes the best one, as rouge-score does and as published for SciTLDR
    (Cachola et al. 2020, arXiv:2004.15011), without Lin's jackknife. Raises ValueError as `reference_lists`;
    Unavailable without rouge-score.
    """
    each = reference_lists(summaries, references)
    require("rouge-score")
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenizers import DefaultTokenizer, Tokenizer

    class AnyScript(Tokenizer):
        english = DefaultTokenizer(use_stemmer=True)

        def tokenize(self, text: str) -> list[str]:
            return [word for one in words_of(text) for word in (self.english.tokenize(one) if one.isascii() else [one])]

    # With an explicit tokenizer rouge-score logs nothing, so it adds no handler to the root logger.
    scorer = RougeScorer(_KINDS, tokenizer=AnyScript())
    scores = [
        scorer.score_multi(own_references, summary) for summary, own_references in zip(summaries, each, strict=True)
    ]
    return {kind: sum(float(one[kind].fmeasure) for one in scores) / len(scores) for kind in _KINDS}

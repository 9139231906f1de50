"""Metrics of translations: corpus BLEU, chrF and exact match.

BLEU and chrF are sacrebleu's with its defaults, on detokenized and cased text, as usually published. BLEU has the words
of the references' script (`scripts.bleu_tokenizer`): of Chinese those of sacrebleu's `zh`, of Japanese or Thai `char`.
Sources: Papineni et al. 2002; Popović 2015; Post 2018, arXiv:1804.08771.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mini_tf.scores import require
from mini_tf.scores.references import reference_lists
from mini_tf.scores.scripts import bleu_tokenizer

if TYPE_CHECKING:
    from sacrebleu import BLEU, CHRF


def corpus_scores(translations: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]) -> dict[str, float]:
    """bleu and chrf (0-100), and exact_match (0-1), the share of translations that equal a reference.

    translations[i] is compared with references[i]; with several references BLEU counts the n-grams of all and chrF
    takes the best. Raises ValueError as `reference_lists`; Unavailable without sacrebleu.
    """
    each = reference_lists(translations, references)
    scores = {
        name: float(metric.corpus_score(list(translations), None).score) for name, metric in _metrics(each).items()
    }
    n_exact = sum(text in own for text, own in zip(translations, each, strict=True))
    return scores | {"exact_match": n_exact / len(each)}


def why_zero(translations: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]) -> str:
    """Why BLEU may be 0 though translations equal their references; "" if it is not for that."""
    bleu = _metrics(reference_lists(translations, references))["bleu"].corpus_score(list(translations), None)
    longest = len(bleu.totals)
    return (
        ""
        if bleu.totals[-1]
        else f"bleu is 0, since no generated text has {longest} words: it multiplies 1- to {longest}-grams"
    )


def signatures(references: Sequence[str] | Sequence[Sequence[str]] = ("",)) -> dict[str, str]:
    """sacrebleu's signatures of bleu and chrf, with the number of references and the tokenizer, for publication."""
    return {
        name: metric.get_signature().format()
        for name, metric in _metrics(reference_lists([""] * len(references), references)).items()
    }


def _metrics(references: Sequence[Sequence[str]]) -> "dict[str, BLEU | CHRF]":
    require("sacrebleu")
    from sacrebleu import BLEU, CHRF

    # sacrebleu takes the first references of all texts, then the second ones, and so on; None for a missing one.
    most = max(map(len, references))
    streams: Any = [[texts[i] if i < len(texts) else None for texts in references] for i in range(most)]
    tokenizer = bleu_tokenizer(text for texts in references for text in texts)
    # `force` changes no result; it only suppresses sacrebleu's warning on stderr about text that looks tokenized.
    return {"bleu": BLEU(tokenize=tokenizer, force=True, references=streams), "chrf": CHRF(references=streams)}

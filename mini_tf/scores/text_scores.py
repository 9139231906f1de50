"""Metrics of generated texts against references: ROUGE, BLEU, chrF and exact match, in any script.

ROUGE is computed by rouge-score, which equals ROUGE-1.5.5 with option -m: words are runs of a-z and 0-9 in lower case,
with Porter's stemmer. Words with other letters, which rouge-score drops, are those of `words_of`, without a stemmer.
BLEU and chrF are sacrebleu's with its defaults, on detokenized and cased text, as usually published. BLEU has the words
of the references' script (`bleu_tokenizer`): of Chinese those of sacrebleu's `zh`, of Japanese or Thai `char`.
Sources: Lin 2004, ROUGE: a package for automatic evaluation of summaries; Papineni et al. 2002; Popović 2015; Post
2018, arXiv:1804.08771.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mini_tf.scores import available, require

References = Sequence[Sequence[str]]
"""Those of each text, at least one."""
_HAN = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3100-\u312f\u31a0-\u31bf\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_OTHERS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
    "\ua9e0-\ua9ff\uaa60-\uaa7f"
)
"""Thai, Lao, Burmese, Khmer, Tai, Hiragana, Katakana."""
_UNSPACED = re.compile(f"[{_HAN}{_OTHERS}]")
_CHINESE = re.compile(f"[{_HAN}]")
MOST_OTHERS = 0.05
"""Largest share of other scripts without spaces in Chinese text. A quarter or more of a Japanese text is kana."""


def words_of(text: str) -> list[str]:
    """Runs of letters, digits and their marks in lower case; of a script without spaces each character."""
    lowered = unicodedata.normalize("NFC", text.lower())
    words = "".join(map(_spaced, lowered)).split()
    return [word for word in words if word[0].isalnum() or _UNSPACED.match(word)]  # not a mark behind an emoji


def _spaced(character: str) -> str:
    if unicodedata.category(character) not in ("Ll", "Lo", "Lm", "Lu", "Lt", "Mn", "Mc", "Me", "Nd", "Nl"):
        return " "
    return f" {character} " if _UNSPACED.match(character) else character


def count_words(text: str) -> int:
    """About the number of `words_of`, in less time."""
    return len(text.split()) + len(_UNSPACED.findall(text))


def bleu_tokenizer(texts: Iterable[str]) -> Literal["13a", "zh", "char"]:
    """sacrebleu's tokenizer for most of the letters of these texts: `char` has each character as a word."""
    letters = [character for text in texts for character in text if character.isalpha()]
    unspaced = [character for character in letters if _UNSPACED.match(character)]
    if 2 * len(unspaced) <= len(letters):
        return "13a"
    others = sum(not _CHINESE.match(character) for character in unspaced)
    return "zh" if others <= MOST_OTHERS * len(unspaced) else "char"


_KINDS = ("rouge1", "rouge2", "rougeL")


def rouge_why_zero(references: References) -> str:
    """Why ROUGE is 0 where references have no words, such as emoji alone; "" if all have some."""
    n = sum(not any(words_of(reference) for reference in texts) for texts in references)
    return f"rouge is 0 for {n:,} of {len(references):,} texts, whose references have no letters or digits" if n else ""


def summary_scores(summaries: Sequence[str], references: References) -> dict[str, float]:
    """rouge1, rouge2 and rougeL: F-measures (0-1), averaged over the texts.

    With several references of a text each metric takes the best one, as rouge-score does and as published for SciTLDR
    (Cachola et al. 2020, arXiv:2004.15011), without Lin's jackknife. Unavailable without rouge-score.
    """
    require("rouge-score")
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenizers import DefaultTokenizer, Tokenizer

    class AnyScript(Tokenizer):
        english = DefaultTokenizer(use_stemmer=True)

        def tokenize(self, text: str) -> list[str]:
            return [
                word for part in words_of(text) for word in (self.english.tokenize(part) if part.isascii() else [part])
            ]

    # With an explicit tokenizer rouge-score logs nothing, so it adds no handler to the root logger.
    scorer = RougeScorer(_KINDS, tokenizer=AnyScript())
    scores = [scorer.score_multi(of_text, summary) for summary, of_text in zip(summaries, references, strict=True)]
    return {kind: sum(float(score[kind].fmeasure) for score in scores) / len(scores) for kind in _KINDS}


if TYPE_CHECKING:
    from sacrebleu import BLEU, CHRF


def corpus_scores(translations: Sequence[str], references: References) -> dict[str, float]:
    """bleu and chrf (0-100), and exact_match (0-1), the share of translations that equal a reference.

    translations[i] is compared with references[i]; with several references BLEU counts the n-grams of all and chrF
    takes the best. Unavailable without sacrebleu.
    """
    metrics = _metrics(references).items()
    scores = {name: float(metric.corpus_score(list(translations), None).score) for name, metric in metrics}
    n_exact = sum(text in of_text for text, of_text in zip(translations, references, strict=True))
    return scores | {"exact_match": n_exact / len(references)}


def bleu_why_zero(translations: Sequence[str], references: References) -> str:
    """Why BLEU may be 0 though translations equal their references; "" if it is not for that."""
    bleu = _metrics(references)["bleu"].corpus_score(list(translations), None)
    longest = len(bleu.totals)
    why = f"bleu is 0, since no generated text has {longest} words: it multiplies 1- to {longest}-grams"
    return "" if bleu.totals[-1] else why


def signatures(references: References) -> dict[str, str]:
    """sacrebleu's signatures of bleu and chrf, with the number of references and the tokenizer, for publication."""
    return {name: metric.get_signature().format() for name, metric in _metrics(references).items()}


def _metrics(references: References) -> "dict[str, BLEU | CHRF]":
    require("sacrebleu")
    from sacrebleu import BLEU, CHRF

    # sacrebleu takes the first references of all texts, then the second ones, and so on; None for a missing one.
    most = max(map(len, references))
    streams: Any = [[texts[i] if i < len(texts) else None for texts in references] for i in range(most)]
    tokenizer = bleu_tokenizer(text for texts in references for text in texts)
    # `force` changes no result; it only suppresses sacrebleu's warning on stderr about text that looks tokenized.
    return {"bleu": BLEU(tokenize=tokenizer, force=True, references=streams), "chrf": CHRF(references=streams)}


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
    rouge = rouge_why_zero(references) if available("rouge-score") else ""
    bleu = bleu_why_zero(texts, references) if available("sacrebleu") else ""
    return [*filter(None, (rouge, bleu))]


NGRAM_SIZES = (1, 2, 3, 4)


def repeated_share(texts: Iterable[Sequence[str]], n: int) -> float | None:
    """Of all n-grams of the texts, which are lists of words; None if no text has n words."""
    total = distinct = 0
    for words in texts:
        ngrams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
        total, distinct = total + len(ngrams), distinct + len(set(ngrams))
    return 1 - distinct / total if total else None

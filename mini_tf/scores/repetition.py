"""Repetition in generated texts: the share of the n-grams that have occurred earlier in the same text.

Source: See et al. 2017, "Get To The Point", arXiv:1704.04368, figure 4.
"""

from collections.abc import Iterable, Sequence

SIZES = (1, 2, 3, 4)


def repeated_share(texts: Iterable[Sequence[str]], n: int) -> float | None:
    """Of all n-grams of the texts, which are lists of words; None if no text has n words."""
    total = distinct = 0
    for words in texts:
        ngrams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
        total, distinct = total + len(ngrams), distinct + len(set(ngrams))
    return 1 - distinct / total if total else None

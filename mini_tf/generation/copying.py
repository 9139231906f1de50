"""Verbatim copies: the share of a text that occurs in the training data in long runs of words."""

import re
from collections.abc import Iterable

MIN_RUN = 8
"""Consecutive words that must occur in both texts to count as copied."""


def copied_share(text: str, corpus: Iterable[str]) -> float:
    """Share (0 to 1) of the words of `text` in runs of MIN_RUN or more words that a document of `corpus` contains."""
    words = _words(text)
    runs = {tuple(words[i : i + MIN_RUN]): i for i in range(len(words) - MIN_RUN + 1)}
    copied: set[int] = set()
    first_words = {run[0] for run in runs}
    for document in corpus if runs else ():
        document_words = _words(document)
        for i, word in enumerate(document_words):
            if word in first_words and (start := runs.get(tuple(document_words[i : i + MIN_RUN]))) is not None:
                copied.update(range(start, start + MIN_RUN))
    return len(copied) / len(words) if words else 0.0


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())

"""How much of a text was copied: the share of its words that stand in a long run that the training text has too."""

import re
from collections.abc import Iterable

RUN = 8
"""Words that must follow each other in both texts to count as copied."""


def copied_share(text: str, corpus: Iterable[str]) -> float:
    """Share of the words of `text` in runs of at least RUN words that occur in `corpus` (its documents), in [0, 1]."""
    words = _words(text)
    runs = {tuple(words[i : i + RUN]): i for i in range(len(words) - RUN + 1)}
    copied: set[int] = set()
    firsts = {run[0] for run in runs}
    for document in corpus if runs else ():
        theirs = _words(document)
        for i, word in enumerate(theirs):
            if word in firsts and (found := runs.get(tuple(theirs[i : i + RUN]))) is not None:
                copied.update(range(found, found + RUN))
    return len(copied) / len(words) if words else 0.0


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())

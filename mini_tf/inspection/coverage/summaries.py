"""What generated texts repeat, and which of the facts of their sources they say."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mini_tf.recipe.corpora import find_corpus
from mini_tf.scores.text_scores import NGRAM_SIZES, repeated_share
from mini_tf.trained.evaluating import other_data
from mini_tf.trained.opening import Trained

FactsOf = Callable[[str], list[str] | None]
"""The facts that a text states, with repetitions."""


class FactCounts(NamedTuple):
    """facts: of the sources; said: of these, in the texts; twice: of these, more than once in its text; stated:
    different facts in the texts; invented: of these, not in their source.
    """

    facts: int = 0
    said: int = 0
    twice: int = 0
    stated: int = 0
    invented: int = 0

    def plus(self, source: Sequence[str], text: Sequence[str]) -> "FactCounts":
        """With the facts of one more source and its text."""
        facts, stated = {*source}, Counter(text)
        said = facts & stated.keys()
        counts = len(facts), len(said), sum(stated[fact] > 1 for fact in said), len(stated), len(stated.keys() - facts)
        return FactCounts(*(a + b for a, b in zip(self, counts, strict=True)))

    @property
    def shares(self) -> dict[str, float | None]:
        """recall and twice: of the facts of the sources; invented: of the stated facts."""
        recall, twice = (n / self.facts if self.facts else None for n in (self.said, self.twice))
        return {"recall": recall, "twice": twice, "invented": self.invented / self.stated if self.stated else None}


class Summaries(NamedTuple):
    """Figures of texts. repetition: share of repeated n-grams by n; facts: None if the data label none."""

    texts: int
    words: int
    repetition: dict[int, float | None]
    facts: FactCounts | None

    @classmethod
    def of(cls, sources: Sequence[str], texts: Sequence[str], facts_of: FactsOf | None) -> "Summaries":
        words, counts = [text.split() for text in texts], None if facts_of is None else FactCounts()
        for source, text in zip(sources, texts, strict=True):
            if facts_of is not None and counts is not None:
                counts = counts.plus(facts_of(source) or [], facts_of(text) or [])
        return cls(len(texts), sum(map(len, words)), {n: repeated_share(words, n) for n in NGRAM_SIZES}, counts)

    def metrics(self) -> dict[str, float | None]:
        facts = {} if self.facts is None else {f"facts.{name}": share for name, share in self.facts.shares.items()}
        return {f"repetition.{n}": share for n, share in self.repetition.items()} | facts

    def to_json(self) -> dict[str, Any]:
        facts = None if self.facts is None else {**self.facts._asdict(), "shares": self.facts.shares}
        return {
            "texts": self.texts,
            "words": self.words,
            "repetition": {str(n): one for n, one in self.repetition.items()},
            "facts": facts,
        }


def facts_reader(trained: Trained, data: str | None) -> FactsOf | None:
    """How the corpus of `data` reads the facts of a text, or that of the run for a file; None: it labels none."""
    own = trained.recipe.data
    named = None if data is None else other_data(trained, data).train
    corpus = next((found for one in (named, own.val, own.train) if (found := find_corpus(one)) is not None), None)
    return None if corpus is None or corpus.facts("") is None else corpus.facts

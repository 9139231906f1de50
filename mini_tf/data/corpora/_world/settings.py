"""Settings of every corpus in the language of the synthetic world."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pydantic import Field

from mini_tf.data.corpora._world.lexicon import MIN_LEXEMES, Lexicon, lexicon
from mini_tf.recipe.corpora import CorpusSettings
from mini_tf.system.errors import DataFault

Document = TypeVar("Document")
MAX_REPEATS = 10_000
"""Documents in succession that were made before, after which no others are expected."""


class WorldSettings(CorpusSettings):
    """The lexicon depends on the last three settings only."""

    n_documents: int = Field(4000, ge=1, le=10**7)
    """Documents, or pairs."""
    seed: int = Field(0, ge=0, le=2**63)
    """Another seed gives other documents of the same language."""
    zipf: float = Field(1.0, ge=0, le=3)
    """Exponent of the word frequencies: the word of rank r has a probability proportional to r^-zipf."""
    n_lexemes: int = Field(800, ge=MIN_LEXEMES, le=10_000)
    """Words of the lexicon, without their inflected forms."""
    n_topics: int = Field(4, ge=1, le=16)
    """Topics, each with nouns of its own."""
    homonym_rate: float = Field(0.15, ge=0, le=0.5)
    """Share of the nouns whose form is also that of other nouns, of other supersenses."""

    @property
    def lexicon(self) -> Lexicon:
        return lexicon(self.n_lexemes, self.n_topics, self.homonym_rate)

    def different(self, made: Iterable[Document], text: Callable[[Document], str], sizes: str) -> Iterator[Document]:
        """The first n_documents of `made` with different texts. sizes: settings that give more texts.

        Raises DataFault if `made` repeats itself.
        """
        seen, repeats = set[str](), 0
        for document in made:
            repeats = repeats + 1 if text(document) in seen else 0
            if repeats == 0:
                seen.add(text(document))
                yield document
            if len(seen) == self.n_documents:
                return
            if repeats == MAX_REPEATS:
                what = f"{self.word}: only {len(seen)} different documents with these settings; n_documents is {self.n_documents}"
                raise DataFault(what, hint=f"raise {sizes}, or lower n_documents")

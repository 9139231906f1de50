"""Tasks on distance: a word must be recalled that stood a number of tokens earlier, with fillers between.

Every word of a task is one of a list, so a tokenizer with a token for each word makes the distance one in tokens. The
columns: `text`, and `answers`, the indices of the words (from 0) that can be known from earlier ones only.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pydantic import Field

from mini_tf.data.corpora._world.lexicon import MIN_LEXEMES, Lexicon, Sampler, lexicon
from mini_tf.recipe.corpora import CorpusSettings
from mini_tf.recipe.kinds import Rules
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
                message = (
                    f"{self.word}: only {len(seen)} different documents with these settings; n_documents is"
                    f" {self.n_documents}"
                )
                raise DataFault(message, hint=f"raise {sizes}, or lower n_documents")


_WORDS = sorted({lexeme.stem for lexeme in lexicon(400, 1, 0.0).lexemes()})
MAX_WORDS = 100
"""Of each list."""
SYMBOLS, KEYS, FILLERS = _WORDS[:MAX_WORDS], _WORDS[MAX_WORDS : 2 * MAX_WORDS], _WORDS[2 * MAX_WORDS : 3 * MAX_WORDS]
"""What is to be recalled; what it is recalled by; the rest."""


class StreamSettings(CorpusSettings):
    """Settings of every task on distance."""

    VERSION, COLUMNS = "1", ("text", "answers")

    n_documents: int = Field(1000, ge=1, le=10**7)
    """Documents."""
    distance: int = Field(200, ge=2, le=10**6)
    """Words from the cue to the answer."""
    n_symbols: int = Field(8, ge=2, le=MAX_WORDS)
    """Different words that may be recalled; guessing is right with probability 1 / n_symbols."""
    n_fillers: int = Field(16, ge=1, le=MAX_WORDS)
    """Different words between the cue and the answer."""
    repeat_filler: bool = False
    """All fillers of a document are one word, so only cues and answers are hard to predict."""
    seed: int = Field(0, ge=0, le=2**63)
    """Another seed gives other documents of the same words."""

    @property
    def shortest(self) -> int:
        """The smallest distance that leaves room for the task."""
        return 2

    def rules(self) -> Rules:
        if self.distance < self.shortest:
            yield "distance", f"must be at least {self.shortest} for this task, got {self.distance}"

    def document(self, sampler: Sampler) -> tuple[list[str], Iterable[int]]:
        """The words of a document, and the indices of its answers."""
        raise NotImplementedError

    def fillers(self, sampler: Sampler, n: int) -> list[str]:
        words = FILLERS[: self.n_fillers]
        return [sampler.pick(words)] * n if self.repeat_filler else [sampler.pick(words) for _ in range(n)]

    def rows(self) -> Iterator[dict[str, str]]:
        sampler = Sampler(self.seed)
        for _ in range(self.n_documents):
            words, answers = self.document(sampler)
            yield {"text": " ".join(words), "answers": " ".join(map(str, answers))}

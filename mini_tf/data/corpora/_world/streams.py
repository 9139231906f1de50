"""Tasks on distance: a word must be recalled that stood a number of tokens earlier, with fillers between.

Every word of a task is one of a list, so a tokenizer with a token for each word makes the distance one in tokens. The
columns: `text`, and `answers`, the indices of the words (from 0) that can be known from earlier ones only.
"""

from collections.abc import Iterable, Iterator

from pydantic import Field

from mini_tf.data.corpora._world.lexicon import lexicon
from mini_tf.data.corpora._world.sampler import Sampler
from mini_tf.recipe.corpora import CorpusSettings
from mini_tf.recipe.kinds import Rules

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

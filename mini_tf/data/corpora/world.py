"""The built-in corpus `world`: documents of an invented language with gold labels of every word.

    today is rukel . the tebos that pimom fos the vagu lured it . they ... then is gogem .

A label column has one entry for each word of `text`, so it can be read as tags: `data.fields: {text: text, label:
senses}`; `topic` is a class of the document. Indices count words from 0; a root has the head -1, a word that is no
pronoun the antecedent -1. Words have frequencies of rank^-zipf within their supersense and topic. The columns are
described in `_world/documents.py`, the language in `_world/syntax.py`.
"""

from collections.abc import Iterator
from itertools import islice

from pydantic import Field

from mini_tf.data.corpora._world.documents import LabelledDocument, documents
from mini_tf.data.corpora._world.lexicon import MIN_LEXEMES, Lexicon, lexicon
from mini_tf.recipe.corpora import CorpusSettings


class WorldSettings(CorpusSettings):
    """Settings of every corpus in this language; the lexicon depends on the last three."""

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


class Settings(WorldSettings):
    VERSION, COLUMNS = "1", LabelledDocument._fields

    n_sentences: int = Field(8, ge=1, le=1000)
    """Sentences of a document, without those of the cue."""
    cue: bool = True
    """A word at the beginning decides a word at the end; guessing is right with probability 1/16."""

    def rows(self) -> Iterator[dict[str, str]]:
        made = documents(self.lexicon, self.zipf, self.n_sentences, self.cue, self.seed)
        return (document.row() for document in islice(made, self.n_documents))

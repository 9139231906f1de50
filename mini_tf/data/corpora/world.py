"""The built-in corpus `world`: documents of an invented language with gold labels of every word.

    today is rukel . the tebos that pimom fos the vagu lured it . they ... then is gogem .

A label column has one entry for each word of `text`, so it can be read as tags: `data.fields: {text: text, label:
senses}`; `topic` is a class of the document, `kinds` are several labels. Indices count words from 0; a root has the
head -1, a word that is no pronoun the antecedent -1. Words have frequencies of rank^-zipf within their supersense and
topic. The columns are described in `_grammar_documents.py`, the language in `_lexicon.py`.
"""

from collections.abc import Iterator

from pydantic import Field

from mini_tf.data.corpora._grammar_documents import WorldDocument, documents
from mini_tf.data.corpora._lexicon import WorldSettings


class Settings(WorldSettings):
    VERSION, COLUMNS = "2", WorldDocument._fields

    n_sentences: int = Field(8, ge=1, le=1000)
    """Sentences of a document, without those of the cue."""
    cue: bool = True
    """A word at the beginning decides a word at the end; guessing is right with probability 1/16."""

    def rows(self) -> Iterator[dict[str, str]]:
        made = documents(self.lexicon, self.zipf, self.n_sentences, self.cue, self.seed)
        return (
            document.row()
            for document in self.different(made, lambda document: " ".join(document.text), "n_sentences or n_lexemes")
        )

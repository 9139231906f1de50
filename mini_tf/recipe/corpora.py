"""Built-in corpora, named in a recipe in place of a file."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from mini_tf.recipe.kinds import Kind, listing, settings_of
from mini_tf.system.temporary_files import write_atomically


class CorpusSettings(Kind):
    """Base class of corpora, which are written to files in the cache."""

    PACKAGE = "data.corpora"

    VERSION: ClassVar[str]
    """Part of the file name; must change whenever the rows change."""
    COLUMNS: ClassVar[tuple[str, ...]] = ("text",)
    """Columns of each row."""
    FORMAT: ClassVar[str] = "jsonl"
    """File format: jsonl (an object per line) or txt (texts separated by blank lines)."""

    @property
    def word(self) -> str:
        return self.kind.replace("_", "-")

    def rows(self) -> Iterable[Mapping[str, str]]:
        """The rows, always the same. Raises Unavailable if they cannot be made on this machine."""
        raise NotImplementedError

    def corpus(self, folder: Path) -> Path:
        """The file in `folder`; written if missing, which takes a few seconds."""
        path = folder / f"{self.word}-{self.VERSION}.{self.FORMAT}"
        if not path.exists():
            rows, plain = self.rows(), self.FORMAT == "txt"
            text = "\n\n".join(row["text"] for row in rows) + "\n" if plain else "".join(json.dumps(row) + "\n" for row in rows)
            write_atomically(path, text)
        return path


def built_in_corpora() -> tuple[str, ...]:
    """The names of built-in corpora; a file with such a name is given as ./grammar."""
    return tuple(word.replace("_", "-") for word in listing("data.corpora"))


def find_corpus(named: object) -> CorpusSettings | None:
    """The corpus of data.train or data.val, given as a name or a list of one name; None for files."""
    word = named[0] if isinstance(named, tuple | list) and len(named) == 1 else named
    if not isinstance(word, str) or word not in built_in_corpora():
        return None
    corpus = settings_of("data.corpora", word.replace("-", "_"))()
    assert isinstance(corpus, CorpusSettings)
    return corpus


def has_pairs(named: object) -> bool:
    """Whether `named` is a corpus with source and target columns."""
    corpus = find_corpus(named)
    return corpus is not None and "source" in corpus.COLUMNS

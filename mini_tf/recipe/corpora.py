"""The corpora that come along, as a recipe names them: a word in place of a file."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from mini_tf.recipe.kinds import Kind, listing, settings_of
from mini_tf.system.temporary_files import write_atomically


class CorpusSettings(Kind):
    """What every corpus declares, and how it becomes a file."""

    PACKAGE = "data.corpora"

    VERSION: ClassVar[str]
    """Part of the file's name, so to be changed whenever the rows are."""
    COLUMNS: ClassVar[tuple[str, ...]] = ("text",)
    """Of each row."""
    FORMAT: ClassVar[str] = "jsonl"
    """Of the file: jsonl, an object a line; or txt, a blank line between texts."""

    @property
    def word(self) -> str:
        return self.kind.replace("_", "-")

    def rows(self) -> Iterable[Mapping[str, str]]:
        """The same each time. Unavailable where it cannot be made here."""
        raise NotImplementedError

    def corpus(self, folder: Path) -> Path:
        """The file in `folder`; made in a few seconds if it is not there."""
        path = folder / f"{self.word}-{self.VERSION}.{self.FORMAT}"
        if not path.exists():
            rows, plain = self.rows(), self.FORMAT == "txt"
            text = "\n\n".join(row["text"] for row in rows) + "\n" if plain else "".join(json.dumps(row) + "\n" for row in rows)
            write_atomically(path, text)
        return path


def built_in() -> tuple[str, ...]:
    """The words that stand for a corpus; a file of such a name is written ./grammar."""
    return tuple(word.replace("_", "-") for word in listing("data.corpora"))


def corpus_of(named: object) -> CorpusSettings | None:
    """The corpus that data.train or data.val names, alone or in a list of one; None for files."""
    word = named[0] if isinstance(named, tuple | list) and len(named) == 1 else named
    if not isinstance(word, str) or word not in built_in():
        return None
    corpus = settings_of("data.corpora", word.replace("-", "_"))()
    assert isinstance(corpus, CorpusSettings)
    return corpus


def has_pairs(named: object) -> bool:
    """Whether that is a corpus whose rows are pairs of a source and a target."""
    corpus = corpus_of(named)
    return corpus is not None and "source" in corpus.COLUMNS

"""Built-in corpora, named in a recipe in place of a file: `world`, or with settings `{kind: world, seed: 1}`."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic_core import core_schema

from mini_tf.recipe.kinds import Kind, KindOf, settings_of
from mini_tf.system.cache import hash_of
from mini_tf.system.safe_files import write_atomically


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
        return CORPUS.written(self.kind)

    @property
    def file_name(self) -> str:
        """Settings other than the defaults are part of it, as a hash."""
        settings = self.model_dump(mode="json", exclude_defaults=True)
        return f"{self.word}-{self.VERSION}{f'-{hash_of(settings)[:12]}' if settings else ''}.{self.FORMAT}"

    def rows(self) -> Iterable[Mapping[str, str]]:
        """The rows: the same for the same settings. Raises Unavailable if they cannot be made on this machine."""
        raise NotImplementedError

    def facts(self, text: str) -> list[str] | None:
        """The facts that a text states in any form, in its order, with repetitions; None: no facts are labelled."""
        return None

    def corpus(self, folder: Path) -> Path:
        """The file in `folder`; written if missing, which takes a few seconds."""
        path = folder / self.file_name
        if not path.exists():
            rows, plain = self.rows(), self.FORMAT == "txt"
            text = (
                "\n\n".join(row["text"] for row in rows) + "\n"
                if plain
                else "".join(json.dumps(row) + "\n" for row in rows)
            )
            write_atomically(path, text)
        return path


class CorpusOf(KindOf):
    """Marks a corpus, given as a mapping with `kind`. A name alone remains text, as the name of a file does."""

    def written(self, name: str) -> str:
        return name.replace("_", "-")

    def write(self, value: Any, info: core_schema.SerializationInfo) -> dict[str, Any]:
        return super().write(value, info) | {"kind": value.word}


CORPUS = CorpusOf(CorpusSettings.PACKAGE)


def built_in_corpora() -> tuple[str, ...]:
    """The names of built-in corpora; a file with such a name is given as ./grammar."""
    return CORPUS.words()


def find_corpus(named: object) -> CorpusSettings | None:
    """The corpus of data.train or data.val: its settings, its name, or a list of one name; None for files."""
    word = named[0] if isinstance(named, tuple | list) and len(named) == 1 else named
    if isinstance(word, CorpusSettings):
        return word
    if not isinstance(word, str) or word not in built_in_corpora():
        return None
    corpus = settings_of("data.corpora", word.replace("-", "_"))()
    assert isinstance(corpus, CorpusSettings)
    return corpus


def has_pairs(named: object) -> bool:
    """Whether `named` is a corpus with source and target columns."""
    corpus = find_corpus(named)
    return corpus is not None and "source" in corpus.COLUMNS

"""The built-in corpus `python-docs`: English prose about programming, from the running Python; nothing is downloaded.

It consists of the help topics of `pydoc_data` and the docstrings of the standard library: paragraphs of prose, without
duplicates.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from mini_tf.data.corpora._documentation import (
    PYTHON,
    docstrings,
    library,
    parsed,
    prose,
    python_files,
    without_sources,
)
from mini_tf.recipe.corpora import CorpusSettings

MIN_CHARACTERS = 100_000


class Settings(CorpusSettings):
    VERSION = f"1-{PYTHON}"

    def rows(self) -> list[dict[str, str]]:
        """One row per help topic or docstring."""
        texts = list(_without_repeats(_texts()))
        if sum(map(len, texts)) < MIN_CHARACTERS:
            raise without_sources(self.word, "use a text file: data.train=FILE")
        return [{"text": text} for text in texts]


def _texts() -> Iterator[str]:
    for file in python_files(library()):
        yield from _topics(file) if file.match("pydoc_data/topics.py") else docstrings(file)


def _topics(file: Path) -> Iterator[str]:
    values = (value for node in ast.walk(parsed(file)) if isinstance(node, ast.Dict) for value in node.values)
    return (value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str))


def _without_repeats(texts: Iterator[str]) -> Iterator[str]:
    """The prose of each text, without paragraphs of earlier texts."""
    seen: set[str] = set()
    for text in texts:
        fresh = [p for p in dict.fromkeys(prose(text)) if p not in seen]
        seen.update(fresh)
        if fresh:
            yield "\n".join(fresh)

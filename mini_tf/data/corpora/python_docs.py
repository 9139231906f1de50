"""The built-in corpus `python-docs`: English prose about programming, from the Python that is running; no download.

It is the help topics of `pydoc_data` and the docstrings of the standard library, without what is no prose; no paragraph
stands twice.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from mini_tf.data.corpora._documentation import PYTHON, docstrings, library, parsed, prose, python_files, without_sources
from mini_tf.recipe.corpora import CorpusSettings

FEWEST_CHARACTERS = 100_000


class Settings(CorpusSettings):
    VERSION = f"1-{PYTHON}"

    def rows(self) -> list[dict[str, str]]:
        """One help topic or docstring each."""
        kept = list(_without_repeats(_texts()))
        if sum(map(len, kept)) < FEWEST_CHARACTERS:
            raise without_sources(self.word, "give a text file: data.train=FILE")
        return [{"text": text} for text in kept]


def _texts() -> Iterator[str]:
    for file in python_files(library()):
        yield from _topics(file) if file.match("pydoc_data/topics.py") else docstrings(file)


def _topics(file: Path) -> Iterator[str]:
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Dict):
            yield from (value.value for value in node.values if isinstance(value, ast.Constant) and isinstance(value.value, str))


def _without_repeats(texts: Iterator[str]) -> Iterator[str]:
    """The prose of each text, without paragraphs that stood before."""
    seen: set[str] = set()
    for text in texts:
        fresh = [p for p in dict.fromkeys(prose(text)) if p not in seen]
        seen.update(fresh)
        if fresh:
            yield "\n".join(fresh)

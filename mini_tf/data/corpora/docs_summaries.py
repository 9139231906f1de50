"""The built-in pairs `docs-summaries`: what a docstring explains, and the one sentence it begins with, which sums that up (PEP 257).

The docstrings are those of the standard library of the Python that is running; no download.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mini_tf.data.corpora import _documentation as documentation
from mini_tf.recipe.corpora import CorpusSettings

FEWEST_PAIRS = 100
FEWEST_WORDS, MOST_WORDS = 3, 40
"""Of a summary."""
NOT_ONE_SENTENCE = re.compile(r"^\S+\(|[.!?][\"')]* +[A-Z]|:|=|[,;]$")
"""Signatures, definitions and titles above a list are none; nor are two sentences."""
HEADING = re.compile(r"(?:\w+ )?(?:argument|attribute|variable)s?(?: \w+)?: |(?!note|return|warning)\S+(?: -+|:) ", re.IGNORECASE)
"""The first words of a list of definitions."""
LEADING_ON = re.compile(r"(?:^|(?<=[.!?]) )[^.!?]*:$|:+$")
"""A last sentence that announces what stands below it."""


class Pair(NamedTuple):
    """source: the sentences of a docstring after its first paragraph; target: that paragraph, one sentence."""

    source: str
    target: str


class Settings(CorpusSettings):
    VERSION, COLUMNS = f"1-{documentation.PYTHON}", Pair._fields

    def rows(self) -> list[dict[str, str]]:
        found = list(pairs(documentation.library()))
        if len(found) < FEWEST_PAIRS:
            raise documentation.without_sources(
                self.word, "give pairs of your own: data.train=FILE data.fields='{source: COLUMN, target: COLUMN}'"
            )
        return [pair._asdict() for pair in found]


def pairs(folder: Path) -> Iterator[Pair]:
    """Those of all Python files below `folder`, in the order of their names; of equal sources the first."""
    seen = set()
    for file in documentation.python_files(folder):
        for docstring in documentation.docstrings(file):
            pair = pair_of(docstring)
            if pair and pair.source not in seen:
                seen.add(pair.source)
                yield pair


def pair_of(docstring: str) -> Pair | None:
    """The summary is the first line if that ends a sentence, else the first paragraph.

    None where that is not one sentence, or where nothing in prose follows that is as long.
    """
    first, _, rest = docstring.partition("\n")
    if not first.rstrip().endswith("."):
        first, rest = (*documentation.BLANK_LINE.split(docstring, maxsplit=1), "")[:2]
    target = documentation.plain(first)
    source = " ".join(filter(None, map(_explained, documentation.prose(rest, technical=True)))).removeprefix(target).strip()
    return Pair(source, target) if _is_summary(target) and len(source) >= len(target) else None


def _explained(paragraph: str) -> str:
    """A paragraph without what only leads to a list or to code, which are not there; "" of a list, of a licence, and of half a sentence."""
    half = paragraph[0].islower() and documentation.COMMON.match(paragraph)
    return "" if half or HEADING.match(paragraph) or paragraph.isupper() else LEADING_ON.sub("", paragraph)


def _is_summary(line: str) -> bool:
    return (
        FEWEST_WORDS <= len(line.split()) <= MOST_WORDS
        and line.isascii()
        and line[0].isalpha()
        and documentation.share_of_letters(line) >= 0.85
        and not documentation.NOT_PROSE.search(line)
        and not NOT_ONE_SENTENCE.search(line)
    )

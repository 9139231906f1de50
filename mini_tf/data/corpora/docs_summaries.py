"""The built-in corpus `docs-summaries`: bodies of docstrings and the first sentences that summarize them (PEP 257).

The docstrings are those of the running Python's standard library; nothing is downloaded.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mini_tf.data.corpora import _documentation as documentation
from mini_tf.recipe.corpora import CorpusSettings

MIN_PAIRS = 100
MIN_WORDS, MAX_WORDS = 3, 40
"""Words of a summary."""
NOT_ONE_SENTENCE = re.compile(r"^\S+\(|[.!?][\"')]* +[A-Z]|:|=|[,;]$")
"""Matches signatures, definitions, titles of lists, and two sentences."""
HEADING = re.compile(
    r"(?:\w+ )?(?:argument|attribute|variable)s?(?: \w+)?: |(?!note|return|warning)\S+(?: -+|:) ", re.IGNORECASE
)
"""Matches the beginning of a list of definitions."""
LEAD_IN = re.compile(r"(?:^|(?<=[.!?]) )[^.!?]*:$|:+$")
"""Matches a last sentence that introduces a list or code."""


class DocstringSummary(NamedTuple):
    """source: the sentences after the first paragraph of a docstring; target: the first paragraph, one sentence."""

    source: str
    target: str


class Settings(CorpusSettings):
    VERSION, COLUMNS = f"1-{documentation.PYTHON}", DocstringSummary._fields

    def rows(self) -> list[dict[str, str]]:
        summaries = list(pairs(documentation.library()))
        if len(summaries) < MIN_PAIRS:
            message = "use your own pairs: data.train=FILE data.fields='{source: COLUMN, target: COLUMN}'"
            raise documentation.without_sources(self.word, message)
        return [pair._asdict() for pair in summaries]


def pairs(folder: Path) -> Iterator[DocstringSummary]:
    """The pairs of all Python files below `folder`, sorted by file name, with distinct sources."""
    seen = set()
    for file in documentation.python_files(folder):
        for docstring in documentation.docstrings(file):
            pair = pair_of(docstring)
            if pair and pair.source not in seen:
                seen.add(pair.source)
                yield pair


def pair_of(docstring: str) -> DocstringSummary | None:
    """The summary is the first line if it ends with a period, else the first paragraph.

    None if the summary is not one sentence, or is longer than the prose that follows.
    """
    first, _, rest = docstring.partition("\n")
    if not first.rstrip().endswith("."):
        first, rest = (*documentation.BLANK_LINE.split(docstring, maxsplit=1), "")[:2]
    target = documentation.plain(first)
    source = " ".join(filter(None, map(_body, documentation.prose(rest, technical=True)))).removeprefix(target).strip()
    return DocstringSummary(source, target) if _is_summary(target) and len(source) >= len(target) else None


def _body(paragraph: str) -> str:
    """A paragraph without a sentence that introduces a list or code; "" for a list, a licence, or half a sentence."""
    half = paragraph[0].islower() and documentation.COMMON.match(paragraph)
    return "" if half or HEADING.match(paragraph) or paragraph.isupper() else LEAD_IN.sub("", paragraph)


def _is_summary(line: str) -> bool:
    return (
        MIN_WORDS <= len(line.split()) <= MAX_WORDS
        and line.isascii()
        and line[0].isalpha()
        and documentation.letter_ratio(line) >= 0.85
        and not documentation.NOT_PROSE.search(line)
        and not NOT_ONE_SENTENCE.search(line)
    )

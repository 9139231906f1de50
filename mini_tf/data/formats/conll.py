"""Sentences as CoNLL has them: a word a line with its columns beside it, a blank line after each sentence.

Columns are cut at tabs where the line has one, else at runs of blanks. `-DOCSTART-` lines and comments are passed over; so are, in
CoNLL-U, lines that repeat words (`1-2`) or stand for none (`8.1`). Source: universaldependencies.org/format.html.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from mini_tf.data.formats.lines import Errors, lines_of
from mini_tf.data.formats.sources import Source
from mini_tf.system.errors import DataFault
from mini_tf.system.limits import format_bytes, limits

DOCUMENT = "-DOCSTART-"
TAG = re.compile(r"O|[BIESLU]-\S+")
"""A tag of a span of words."""


class _Shape(NamedTuple):
    """How the first line that is surely a word's is made: its number, how many columns it has, and whether tabs part them."""

    number: int
    width: int
    tabs: bool


def sentences(source: Source, errors: Errors) -> Iterator[tuple[list[list[str]], str] | DataFault]:
    """All sentences: for each word its columns, as many for each; and where the first one stands.

    A DataFault in the place of a line that has other columns than the first, or an empty one; raised where a sentence does not end.
    """
    shape = _shape(source, errors)
    words, begin, size = list[list[str]](), "", 0
    for number, line in lines_of(source.path, source.name, errors):
        where, line = f"{source.name}:{number}", line.removesuffix("\n")
        if _ends(line):
            if words:
                yield words, begin
            words, size = [], 0
            continue
        cells = _cells(line)
        try:
            if line.startswith("#") and _is_comment(line, cells, shape, bool(words), where):
                continue
            _check(cells, shape, where)
            if source.format == "conllu" and not _is_word(cells[0], where):
                continue
        except DataFault as fault:
            yield fault
            continue
        begin, size = begin if words else where, size + len(line) + 1
        if size > limits().line_bytes:
            hint = "a blank line ends a sentence; is there none?"
            raise DataFault.located(where, f"the sentence from {begin} on is longer than {format_bytes(limits().line_bytes)}", hint=hint)
        words.append(cells)
    if words:
        yield words, begin


def _ends(line: str) -> bool:
    return not line.strip() or line.split(maxsplit=1)[0] == DOCUMENT


def _cells(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))


def _shape(source: Source, errors: Errors) -> _Shape:
    """Of the first line that does not begin with #; in a file of such words alone, of the first that has a tab."""
    shape = _Shape(0, 0, True)
    for number, line in lines_of(source.path, source.name, errors):
        line = line.removesuffix("\n")
        sure = not _ends(line) and not line.startswith("#")
        if sure or (not shape.number and line.startswith("#") and "\t" in line):
            shape = _Shape(number, len(_cells(line)), "\t" in line)
        if sure:
            break
    return shape


def _is_comment(line: str, cells: list[str], shape: _Shape, within: bool, where: str) -> bool:
    """Whether a line that begins with # is none of a word such as #1 or #: it is made otherwise than the lines of words are.

    Comments stand before a sentence only. There `# word` is doubtful, in a file of two columns and no tabs.
    """
    tabs = "\t" in line
    if len(cells) != shape.width or (shape.tabs and not tabs) or (tabs and not shape.tabs and " " in cells[0]):
        return True
    if within or shape.tabs or cells[0] != "#" or TAG.fullmatch(cells[-1]):
        return False
    hint = "put a tab between columns if it is a word; if it is a comment, take it out"
    raise DataFault.located(where, "may be a comment, or the word # with its columns", hint=hint)


def _check(cells: list[str], shape: _Shape, where: str) -> None:
    if len(cells) != shape.width:
        raise DataFault.located(where, f"{len(cells)} columns, but line {shape.number} has {shape.width}")
    for number, cell in enumerate(cells):
        if not cell.strip():
            raise DataFault.located(where, f"column {number} is empty (they count from 0)", hint="_ is the usual sign for nothing")


def _is_word(number: str, where: str) -> bool:
    found = re.fullmatch(r"[0-9]+([-.][0-9]+)?", number)
    if found is None:
        hint = "a file of other columns may be called .conll"
        raise DataFault.located(where, "a line of CoNLL-U begins with the word's number", hint=hint)
    return found[1] is None

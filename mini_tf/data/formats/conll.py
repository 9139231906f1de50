"""Read CoNLL files: one word with its columns per line, a blank line after each sentence.

Columns are split at tabs if the line has one, else at runs of spaces. `-DOCSTART-` lines and comments are skipped, and
in CoNLL-U multiword tokens (`1-2`) and empty nodes (`8.1`). A file of ten columns whose words are numbered is CoNLL-U,
whatever its name. Source: universaldependencies.org/format.html.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from mini_tf.data.formats.data_files import DataFile
from mini_tf.data.formats.text_lines import Errors, read_lines
from mini_tf.system.errors import DataFault
from mini_tf.system.limits import format_bytes, limits

DOCUMENT = "-DOCSTART-"
TAG = re.compile(r"O|[BIESLU]-\S+")
"""A BIO or BIOES tag."""
WIDTH, FIRST = 10, re.compile(r"1|1-[0-9]+|0\.1")
"""Columns of CoNLL-U, and the first cell of a sentence: a word, a multiword token or an empty node."""


class _Shape(NamedTuple):
    """Format of the first line that certainly holds a word: line number, number of columns, tabs as separators.

    numbered: its first column is the number of the word, as in CoNLL-U.
    """

    number: int
    width: int
    tabs: bool
    numbered: bool


def sentences(data_file: DataFile, errors: Errors) -> Iterator[tuple[list[list[str]], str] | DataFault]:
    """All sentences: the columns of each word, and the location of the first word.

    A line with a different number of columns, or with an empty one, yields a DataFault. Raises DataFault for a sentence
    that is too long.
    """
    shape, longest = _shape(data_file, errors), limits().line_bytes
    words, start, size = list[list[str]](), "", 0
    for number, line in read_lines(data_file.path, data_file.name, errors):
        where, line = f"{data_file.name}:{number}", line.removesuffix("\n")
        if _ends(line):
            if words:
                yield words, start
            words, size = [], 0
            continue
        cells = _cells(line)
        try:
            if line.startswith("#") and _is_comment(line, cells, shape, bool(words), where):
                continue
            _check(cells, shape, where)
            if shape.numbered and not _is_word(cells[0], where):
                continue
        except DataFault as fault:
            yield fault
            continue
        start, size = start if words else where, size + len(line) + 1
        if size > longest:
            message = f"the sentence that starts at {start} is longer than {format_bytes(longest)}"
            raise DataFault.located(where, message, hint="put a blank line after each sentence")
        words.append(cells)
    if words:
        yield words, start


def is_numbered(data_file: DataFile, errors: Errors) -> bool:
    """Whether the first column of a file is the number of the word: its words are in the second one."""
    return _shape(data_file, errors).numbered


def _ends(line: str) -> bool:
    return not line.strip() or line.split(maxsplit=1)[0] == DOCUMENT


def _cells(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))


def _shape(data_file: DataFile, errors: Errors) -> _Shape:
    """The format of the first line that does not start with #; if all do, of the first with a tab."""
    is_conllu = data_file.format == "conllu"
    shape = _Shape(0, 0, True, is_conllu)
    for number, line in read_lines(data_file.path, data_file.name, errors):
        line = line.removesuffix("\n")
        certain = not _ends(line) and not line.startswith("#")
        if certain or (not shape.number and line.startswith("#") and "\t" in line):
            cells = _cells(line)
            numbered = is_conllu or (len(cells) == WIDTH and FIRST.fullmatch(cells[0]) is not None)
            shape = _Shape(number, len(cells), "\t" in line, numbered)
        if certain:
            break
    return shape


def _is_comment(line: str, cells: list[str], shape: _Shape, within: bool, where: str) -> bool:
    """Whether a line that starts with # is a comment, whose format differs from that of words, not a word such as #1.

    Comments occur only before a sentence. DataFault for `# word` there in a file of two columns without tabs.
    """
    tabs = "\t" in line
    if len(cells) != shape.width or (shape.tabs and not tabs) or (tabs and not shape.tabs and " " in cells[0]):
        return True
    if within or shape.tabs or cells[0] != "#" or TAG.fullmatch(cells[-1]):
        return False
    hint = "put a tab between columns if it is a word; remove it if it is a comment"
    raise DataFault.located(where, "may be a comment or the word # with its columns", hint=hint)


def _check(cells: list[str], shape: _Shape, where: str) -> None:
    if len(cells) != shape.width:
        raise DataFault.located(where, f"{len(cells)} columns, but line {shape.number} has {shape.width}")
    for number, cell in enumerate(cells):
        if not cell.strip():
            raise DataFault.located(where, f"column {number} (from 0) is empty", hint="write _ for no value")


def _is_word(number: str, where: str) -> bool:
    match = re.fullmatch(r"[0-9]+([-.][0-9]+)?", number)
    if match is None:
        hint = "a file whose name ends in .conll may have other columns"
        raise DataFault.located(where, "a line of CoNLL-U must start with the word's number", hint=hint)
    return match[1] is None

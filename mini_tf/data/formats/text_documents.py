"""Read documents from files as a stream in bounded memory.

A document is a block between blank lines, or lines <|endoftext|>, in txt, else a table row. Its characters are
unchanged, except that a byte order mark is dropped and CRLF becomes LF. Invalid input raises DataFault with
`file:line`; nothing is repaired.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mini_tf.data.formats.columns import Columns, text_of
from mini_tf.data.formats.data_files import DataFile
from mini_tf.data.formats.tables import try_rows
from mini_tf.data.formats.text_lines import read_lines
from mini_tf.system.errors import DataFault, raise_first_fault

PART_SIZE = 1 << 20
"""Approximate characters per part of a large document."""
CLEAN_CUT = re.compile(r"(?<=\S) (?=\S)|\n(?=\S)")
"""Before a single space or newline and a word: byte-level BPE splits here anyway, so a cut changes no token."""


@dataclass(frozen=True)
class Document:
    """A text, or a part of a large one; `opens` is False for the parts after the first.

    uncut: the text of which this is the beginning, where a split has cut it; None: this is all of it.
    """

    text: str
    where: str
    opens: bool = True
    uncut: str | None = None


def read(data_files: Iterable[DataFile], columns: Columns) -> Iterator[Document]:
    """The documents of all files; empty ones are skipped. Raises the first DataFault."""
    return raise_first_fault(document for data_file in data_files for document in try_documents(data_file, columns))


def try_documents(data_file: DataFile, columns: Columns) -> Iterator[Document | DataFault]:
    """The documents of a file; an invalid row yields its DataFault instead."""
    if data_file.format == "txt":
        yield from _blocks(data_file, columns)
        return
    for row in try_rows(data_file, columns):
        try:
            [row] = raise_first_fault([row])
            text = text_of(row.cells[0], row.where, columns.names[0] or "text")
        except DataFault as fault:
            yield fault
            continue
        if text.strip():
            yield from parts_of([text], row.where)


def read_raw(data_files: Iterable[DataFile], columns: Columns) -> Iterator[Document]:
    """All characters of all files as one document without separators; table rows end with a newline."""
    opens = True
    for data_file in data_files:
        if data_file.format == "txt":
            pieces: Iterator[str] = (line for _, line in read_lines(data_file.path, data_file.name, columns.errors))
        else:
            pieces = _lines_of(read([data_file], columns))
        for text in _regrouped(pieces):
            yield Document(text, data_file.name, opens)
            opens = False


def _lines_of(documents: Iterable[Document]) -> Iterator[str]:
    """The texts of documents, each with a newline behind its last part."""
    end = ""
    for document in documents:
        yield end + document.text if document.opens else document.text
        end = "\n"
    yield end


def _regrouped(pieces: Iterable[str]) -> Iterator[str]:
    """The same characters in parts of about PART_SIZE, cut at CLEAN_CUT if possible."""
    buffer: list[str] = []
    size = 0
    for piece in pieces:
        buffer.append(piece)
        size += len(piece)
        if size < 2 * PART_SIZE:
            continue
        text = "".join(buffer)
        while len(text) >= 2 * PART_SIZE:
            match = CLEAN_CUT.search(text, PART_SIZE, 2 * PART_SIZE)
            end = match.start() if match else PART_SIZE
            yield text[:end]
            text = text[end:]
        buffer, size = [text], len(text)
    if size:
        yield "".join(buffer)


def parts_of(pieces: Iterable[str], where: str) -> Iterator[Document]:
    """A document, given in pieces, in parts of about PART_SIZE."""
    for n, text in enumerate(_regrouped(pieces)):
        yield Document(text, where, opens=n == 0)


def _blocks(data_file: DataFile, columns: Columns) -> Iterator[Document]:
    """Runs of lines that are no border, without the final newline."""
    for border, lines in itertools.groupby(
        read_lines(data_file.path, data_file.name, columns.errors), key=lambda line: is_border(line[1])
    ):
        if not border:
            number, first = next(lines)
            rest = ("\n" + line.removesuffix("\n") for _, line in lines)
            yield from parts_of(itertools.chain([first.removesuffix("\n")], rest), f"{data_file.name}:{number}")


MARK = "<|endoftext|>"
"""What TinyStories and others write between documents."""


def is_border(line: str) -> bool:
    """A line between two documents: a blank one, or MARK."""
    return line.strip() in ("", MARK)

"""From files to documents: blocks of txt and rows of tables, read as a stream in bounded memory.

A document is a block between blank lines in txt and a row elsewhere; its characters stay as they are, except that a
byte order mark is dropped and CRLF becomes LF. Nothing doubtful is repaired: it is refused with `file:line`.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mini_tf.data.formats.cells import text_of
from mini_tf.data.formats.columns import Columns
from mini_tf.data.formats.lines import lines_of
from mini_tf.data.formats.sources import Source
from mini_tf.data.formats.tables import try_rows
from mini_tf.system.errors import DataFault, raise_first_fault

PART = 1 << 20
"""Characters after which a document goes on in a further part."""
CLEAN_CUT = re.compile(r"(?<=\S) (?=\S)|\n(?=\S)")
"""Before a single blank or a line end that a word follows: byte-level bpe cuts here anyway, so cutting here changes no token."""


@dataclass(frozen=True)
class Document:
    """A text, or, where it is huge, a part of one: `opens` is False for the parts after the first."""

    text: str
    where: str
    opens: bool = True


def read(sources: Iterable[Source], columns: Columns) -> Iterator[Document]:
    """The documents of all sources, one after another; empty ones are passed over. DataFault at the first that is none."""
    return raise_first_fault(document for source in sources for document in try_documents(source, columns))


def try_documents(source: Source, columns: Columns) -> Iterator[Document | DataFault]:
    """The documents of a source, and in the place of each row that is none what is wrong with it."""
    if source.format == "txt":
        yield from _blocks(source, columns)
        return
    for row in try_rows(source, columns):
        try:
            [row] = raise_first_fault([row])
            text = text_of(row.cells[0], row.where, columns.names[0] or "text")
        except DataFault as fault:
            yield fault
            continue
        if text.strip():
            yield from _parts([text], row.where)


def read_raw(sources: Iterable[Source], columns: Columns) -> Iterator[Document]:
    """All characters of all sources as one document, nothing put between them; rows of tables end in a newline."""
    opens = True
    for source in sources:
        if source.format == "txt":
            pieces: Iterator[str] = (line for _, line in lines_of(source.path, source.name, columns.errors))
        else:
            pieces = (d.text + "\n" for d in read([source], columns))
        for text in _gathered(pieces):
            yield Document(text, source.name, opens)
            opens = False


def _gathered(pieces: Iterable[str]) -> Iterator[str]:
    """The same characters in parts of about `PART`, cut where no token is cut if there is such a place."""
    held: list[str] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size < 2 * PART:
            continue
        text = "".join(held)
        while len(text) >= 2 * PART:
            found = CLEAN_CUT.search(text, PART, 2 * PART)
            end = found.start() if found else PART
            yield text[:end]
            text = text[end:]
        held, size = [text], len(text)
    if size:
        yield "".join(held)


def _parts(pieces: Iterable[str], where: str) -> Iterator[Document]:
    for n, text in enumerate(_gathered(pieces)):
        yield Document(text, where, opens=n == 0)


def _blocks(source: Source, columns: Columns) -> Iterator[Document]:
    """Runs of lines that are not blank, without their last line end."""
    for blank, lines in itertools.groupby(lines_of(source.path, source.name, columns.errors), key=lambda line: not line[1].strip()):
        if not blank:
            number, first = next(lines)
            rest = ("\n" + line.removesuffix("\n") for _, line in lines)
            yield from _parts(itertools.chain([first.removesuffix("\n")], rest), f"{source.name}:{number}")

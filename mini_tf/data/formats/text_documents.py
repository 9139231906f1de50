"""Read documents from files in bounded memory: as a stream, or those that begin in a part of a file, found by seeking.

A document is a block between blank lines, or lines <|endoftext|>, in txt, else a table row. Its characters are
unchanged, except that a byte order mark is dropped and CRLF becomes LF. Invalid input raises DataFault with
`file:line`; nothing is repaired. Every document is in exactly one of any adjoining parts.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from mini_tf.data.formats.columns import Cell, Columns, missing_column, text_of
from mini_tf.data.formats.data_files import DataFile
from mini_tf.data.formats.parquet import open_parquet
from mini_tf.data.formats.tables import parse_object, read_columns, too_long, try_rows
from mini_tf.data.formats.text_lines import Errors, read_lines, read_lines_from
from mini_tf.system.errors import DataFault, raise_first_fault
from mini_tf.system.limits import format_bytes

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


CUT = 1 << 15
"""A document of a txt file with more bytes than this is cut, at the first line behind each multiple of CUT."""
MAX_ROW_GROUP = 256 << 20
"""Bytes of text of a parquet row group, at most: reading one of its rows decodes those before it."""


_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Shard:
    """A file whose parts can be read. size: bytes of the file. length: number of places. column: of a table's text.

    n_rows, ends (n_groups,): of parquet, the rows of each row group, and where its text ends.
    """

    file: DataFile
    size: int
    length: int
    column: str = ""
    n_rows: np.ndarray = field(default_factory=lambda: _NONE)
    ends: np.ndarray = field(default_factory=lambda: _NONE)

    @property
    def largest_group(self) -> int:
        """Bytes of text that must be decoded at once, at most; 0 where any place can be reached."""
        return int(np.diff(self.ends, prepend=0).max(initial=0))


def open_shard(data_file: DataFile, columns: Columns) -> Shard:
    """DataFault if parts of such a file cannot be read, or if it has no such column."""
    if data_file.format not in ("txt", "jsonl", "parquet"):
        hint = "convert it to jsonl or parquet, or use data.streaming=false"
        message = f"{data_file.format} cannot be read in parts; data.streaming reads txt, jsonl and parquet"
        raise DataFault.located(data_file.name, message, hint)
    size = data_file.path.stat().st_size
    column = next(iter(read_columns(data_file, columns)), "") if size and data_file.format != "txt" else ""
    if data_file.format != "parquet":
        return Shard(data_file, size, size, column)
    with open_parquet(data_file.path, data_file.name) as table:
        sizes, rows = [max(1, table.text_bytes(group, [column])) for group in range(len(table.groups))], table.n_rows
        table.check([column])
    if sizes and max(sizes) > MAX_ROW_GROUP:
        hint = "write the file with a smaller row_group_size, or convert it to jsonl"
        size_of_it, most = format_bytes(max(sizes)), format_bytes(MAX_ROW_GROUP)
        message = f"row group {sizes.index(max(sizes))} has {size_of_it} of text; data.streaming reads at most {most}"
        raise DataFault.located(data_file.name, message, hint)
    return Shard(data_file, size, sum(sizes), column, np.array(rows, np.int64), np.cumsum(sizes, dtype=np.int64))


def read_range(shard: Shard, begin: int, end: int, errors: Errors) -> Iterator[Document]:
    """The documents that begin at a place in [begin, end); empty ones are skipped. Raises the first DataFault."""
    readers = {"txt": _blocks_in, "jsonl": _lines_in, "parquet": _groups_in}
    return readers[shard.file.format](shard, begin, end, errors)


def _blocks_in(shard: Shard, begin: int, end: int, errors: Errors) -> Iterator[Document]:
    """Runs of lines that are no border, as in `_blocks`; a longer one than CUT in parts that any range finds.

    A line that follows a multiple of CUT begins a part if no border begins in the CUT bytes before that multiple, so
    reading starts there: whether a part begins at `begin` depends on nothing before it.
    """
    first = max(0, begin // CUT - 1) * CUT
    before, last_border, was_border = None, -1, first == 0  # the line before; the file begins behind a border
    lines, opens, where = list[str](), True, ""
    for start, line in read_lines_from(shard.file.path, shard.file.name, first, errors):
        border, multiple = is_border(line), start // CUT * CUT
        cut = before is not None and before < multiple and last_border < multiple - CUT
        begins = not border and (was_border or cut)
        if lines and (border or begins):
            yield Document("".join(lines).removesuffix("\n" if border else ""), where, opens)
            lines = []
        if start >= end and not lines:
            return
        if begins and start >= begin:
            lines, opens, where = [line], was_border, f"{shard.file.name}: byte {start}"
        elif lines:
            lines.append(line)
        before, was_border = start, border
        last_border = start if border else last_border
    if lines:
        yield Document("".join(lines).removesuffix("\n"), where, opens)


def _lines_in(shard: Shard, begin: int, end: int, errors: Errors) -> Iterator[Document]:
    """The rows of a jsonl file; only byte numbers tell where they are, since lines before them are not counted."""
    for start, line in read_lines_from(shard.file.path, shard.file.name, begin, errors):
        if start >= end:
            return
        if start < begin or line.isspace():
            continue
        row = parse_object(line, where := f"{shard.file.name}: byte {start}")
        if shard.column not in row:
            raise missing_column(where, shard.column, [*row], [shard.column], shard.file.key)
        yield from _document(row[shard.column], where, shard.column)


def _groups_in(shard: Shard, begin: int, end: int, errors: Errors) -> Iterator[Document]:
    with open_parquet(shard.file.path, shard.file.name) as table:
        for group in range(int(np.searchsorted(shard.ends, begin, side="right")), len(shard.ends)):
            first = int(shard.ends[group - 1]) if group else 0
            if first >= end:
                return
            n, size = int(shard.n_rows[group]), int(shard.ends[group]) - first
            low, high = (min(n, -(-max(0, place - first) * n // size)) for place in (begin, end))
            for n_row, [cell] in table.rows(group, [shard.column], low, high) if low < high else ():
                where = f"{shard.file.name}: row group {group}, row {n_row}"
                if (fault := too_long([cell], where)) is not None:
                    raise fault
                yield from _document(cell, where, shard.column)


def _document(cell: Cell, where: str, column: str) -> Iterator[Document]:
    text = text_of(cell, where, column)
    if text.strip():
        yield from parts_of([text], where)

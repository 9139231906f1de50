"""From files to documents and rows: txt, jsonl, csv, tsv, parquet and CoNLL, read as a stream in bounded memory.

A document is a block between blank lines in txt and a row elsewhere; its characters stay as they are, except that a
byte order mark is dropped and CRLF becomes LF. Nothing doubtful is repaired: it is refused with `file:line`.
"""

import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from mini_tf.data.formats.cells import Cell, text_of
from mini_tf.data.formats.columns import Chosen, Likely, choose, meant, no_column, place_of
from mini_tf.data.formats.conll import sentences
from mini_tf.data.formats.lines import Errors, lines_of
from mini_tf.data.formats.sources import Source
from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault, Unavailable, raising
from mini_tf.system.limits import limits, spoken

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


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are read, and what becomes of bytes that are not UTF-8.

    `names`: each is a column's name, or its number from 0 in a table without names; None takes the one called `text`, else the
    only one. `optional`: columns that there may be. In CoNLL, whose columns have no names, `text` is the first one and `label` the
    last (in CoNLL-U: form and upos). `header` auto: the first line names the columns if one of its cells is `text` or a name asked
    for, or if there are two or more of them and all are different single words that begin with a letter; where numbers are asked
    for, it does not. `errors` replace: each bad byte is read as U+FFFD. For names that are not given but assumed: `likely` are those
    that such columns often have, of which one is read where the name itself is not there; `numbers` the columns of a file without names.
    """

    names: tuple[str | None, ...] = (None,)
    header: Literal["auto"] | bool = "auto"
    errors: Errors = "strict"
    optional: tuple[str, ...] = ()
    likely: Likely = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, fields: Mapping[str, str], header: Literal["auto"] | bool, errors: Errors = "strict", likely: Likely = MappingProxyType({})
    ) -> "Columns":
        unread = sorted(set(fields) - {"text"})
        if unread:
            raise DataFault(f"data.fields: {', '.join(unread)} is not read here; only text is")
        return cls((fields.get("text"),), header, errors, likely=likely)


class Row(NamedTuple):
    """One row of a table: a cell for each of Columns.names, and one for each of Columns.optional, None where there is none."""

    cells: list[Cell]
    where: str
    optional: list[Cell]


def read(sources: Iterable[Source], columns: Columns) -> Iterator[Document]:
    """The documents of all sources, one after another; empty ones are passed over. DataFault at the first that is none."""
    return raising(document for source in sources for document in try_documents(source, columns))


def try_documents(source: Source, columns: Columns) -> Iterator[Document | DataFault]:
    """The documents of a source, and in the place of each row that is none what is wrong with it."""
    if source.format == "txt":
        yield from _blocks(source, columns)
        return
    for row in try_rows(source, columns):
        try:
            [row] = raising([row])
            text = text_of(row.cells[0], row.where, columns.names[0] or "text")
        except DataFault as fault:
            yield fault
            continue
        if text.strip():
            yield from _parts([text], row.where)


def rows_of(source: Source, columns: Columns) -> Iterator[Row]:
    """The rows of a table, empty cells and all; what may be read of a txt file are its lines or blocks, not rows."""
    return raising(try_rows(source, columns))


def try_rows(source: Source, columns: Columns) -> Iterator[Row | DataFault]:
    """The rows of a table, and in the place of each line that is none what is wrong with it.

    DataFault is raised only where no further row can be told from another: a column that no row has, a quote that is never closed.
    """
    readers = {"jsonl": _jsonl, "csv": _table, "tsv": _table, "parquet": _parquet, "conll": _conll, "conllu": _conll}
    return readers[source.format](source, columns)


def read_columns(source: Source, columns: Columns) -> list[str]:
    """What the file itself calls the columns of a table that are read, as its first row has it; nothing where it names none."""
    first: Sequence[str] = ()
    if source.format in ("csv", "tsv"):
        first = next(filter(None, _cells(source, columns)), [])
        if not first:
            return []
        chosen = _chosen(first, columns, source.name, source.key)
        return [first[n] for n in chosen.wanted] if chosen.named else []
    if source.format == "jsonl":
        first = next(
            ([*strict_json.parse(line)] for _, line in lines_of(source.path, source.name, columns.errors) if not line.isspace()), []
        )
    elif source.format == "parquet":
        import pyarrow.parquet

        first = pyarrow.parquet.read_schema(source.path).names
    return _asked(columns, first, source.name, source.key) if first else []


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


def _asked(columns: Columns, there: Sequence[str], where: str, key: str) -> list[str]:
    """The names of the columns that are read, of those that are there; DataFault where one is missing."""
    names = [meant(name or (there[0] if len(there) == 1 else "text"), there, columns.likely) for name in columns.names]
    for name in names:
        if name not in there:
            raise no_column(where, name, there, names, key)
    return names


def _jsonl(source: Source, columns: Columns) -> Iterator[Row | DataFault]:
    chosen = False
    for number, line in lines_of(source.path, source.name, columns.errors):
        if line.isspace():
            continue
        try:
            row = _object(line, where := f"{source.name}:{number}")
            if not chosen:  # by the first row, for all
                columns, chosen = _settled(columns, [*row]), True
            names = _asked(columns, [*row], where, source.key)
            yield Row([row[name] for name in names], where, [row.get(name) for name in columns.optional])
        except DataFault as fault:
            yield fault


def _settled(columns: Columns, there: Sequence[str]) -> Columns:
    """Columns without what is only assumed: the names that they have among those that are there."""
    names = [name and meant(name, there, columns.likely) for name in columns.names]
    if names == [None] and len(there) > 1 and "text" not in there:
        names = [meant("text", there, columns.likely)]
    return replace(columns, names=tuple(names), likely={})


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        row = strict_json.parse(line)
    except ValueError as error:
        raise DataFault.located(where, f"not valid JSON: {error}") from None
    if not isinstance(row, dict):
        raise DataFault.located(where, f'must be an object such as {{"text": ...}}, not {type(row).__name__}')
    return row


def _table(source: Source, columns: Columns) -> Iterator[Row | DataFault]:
    """Rows of csv (quotes as in RFC 4180) or tsv (no quotes: a tab always ends a cell, a newline a row)."""
    reader = _cells(source, columns)
    chosen, width = None, 0
    while True:
        where = f"{source.name}:{reader.line_num + 1}"
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise DataFault.located(where, f"{_said(error)}") from None
        if row is None:
            return
        if not row:
            continue
        if chosen is None:
            chosen, width = (
                choose(row, columns.names, columns.optional, columns.header, where, source.key, columns.likely, columns.numbers),
                len(row),
            )
            if chosen.named:
                continue
        if len(row) != width:
            yield DataFault.located(where, f"{len(row)} columns, but the first line has {width}")
            continue
        yield Row([row[n] for n in chosen.wanted], where, [None if n is None else row[n] for n in chosen.optional])


def _chosen(first: Sequence[str], columns: Columns, where: str, key: str) -> Chosen:
    return choose(first, columns.names, columns.optional, columns.header, where, key, columns.likely, columns.numbers)


def _cells(source: Source, columns: Columns) -> Any:
    """A reader of the csv module."""
    csv.field_size_limit(limits().line_bytes)
    lines = (line for _, line in lines_of(source.path, source.name, columns.errors))
    dialect: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if source.format == "tsv" else {"strict": True}
    return csv.reader(lines, **dialect)


def _conll(source: Source, columns: Columns) -> Iterator[Row | DataFault]:
    """A sentence a row: in each cell a list, an entry a word."""
    chosen = None
    for sentence in sentences(source, columns.errors):
        if isinstance(sentence, DataFault):
            yield sentence
            continue
        words, where = sentence
        if chosen is None:
            width = len(words[0])
            usual = {"text": "1", "label": "3"} if source.format == "conllu" else {"text": "0"}
            if source.format == "conll" and width > 1:
                usual["label"] = str(width - 1)
            names = [usual.get(name or "text", name) for name in columns.names]
            chosen = choose(words[0], names, [usual.get(name, name) for name in columns.optional], False, where, source.key, {}, {})
        more = [None if n is None else [word[n] for word in words] for n in chosen.optional]
        yield Row([[word[n] for word in words] for n in chosen.wanted], where, [*more])


def _parquet(source: Source, columns: Columns) -> Iterator[Row | DataFault]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise Unavailable(f"{source.name}: reading parquet needs pyarrow", hint="pip install 'minitf[parquet]'") from None
    try:
        with pyarrow.parquet.ParquetFile(source.path) as file:
            there = file.schema_arrow.names
            names = _asked(columns, there, source.name, source.key)
            read = [name for name in dict.fromkeys([*names, *columns.optional]) if name in there]
            for name in read:
                place_of(name, there, source.name)
            number = 0
            for batch in file.iter_batches(batch_size=256, columns=read):
                for values in zip(*(batch.column(name).to_pylist() for name in read), strict=True):
                    number += 1
                    where = f"{source.name}: row {number}"
                    if any(_size(value) > limits().line_bytes for value in values):
                        yield DataFault.located(where, f"a cell is longer than {spoken(limits().line_bytes)}")
                        continue
                    row = dict(zip(read, values, strict=True))
                    yield Row([row[name] for name in names], where, [row.get(name) for name in columns.optional])
    except (pyarrow.ArrowException, OSError) as error:
        raise DataFault.located(source.name, f"not a readable parquet file: {str(error).splitlines()[0]}") from None


def _size(value: Any) -> int:
    """Characters of a cell, however deep its lists are."""
    if isinstance(value, list | dict):
        return sum(map(_size, value.values() if isinstance(value, dict) else value))
    return len(value) if isinstance(value, str) else 0


def _said(error: csv.Error) -> str:
    """What a reader of csv finds wrong, in words that lead on."""
    known = {
        "new-line character": "a line ends in a bare carriage return; save the file with LF or CRLF line ends",
        "unexpected end of data": "a quote is opened and never closed",
    }
    return next((told for begin, told in known.items() if str(error).startswith(begin)), str(error))

"""The rows of tables: jsonl, csv, tsv, parquet and CoNLL, read as a stream in bounded memory.

Nothing doubtful is repaired: it is refused with `file:line`.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from mini_tf.data.formats.cells import Cell
from mini_tf.data.formats.columns import Columns, choose, meant, no_column, place_of
from mini_tf.data.formats.conll import sentences
from mini_tf.data.formats.lines import lines_of
from mini_tf.data.formats.sources import Source
from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault, Unavailable, raise_first_fault
from mini_tf.system.limits import format_bytes, limits


class Row(NamedTuple):
    """One row of a table: a cell for each of Columns.names, and one for each of Columns.optional, None where there is none."""

    cells: list[Cell]
    where: str
    optional: list[Cell]


def rows_of(source: Source, columns: Columns) -> Iterator[Row]:
    """The rows of a table, empty cells and all; what may be read of a txt file are its lines or blocks, not rows."""
    return raise_first_fault(try_rows(source, columns))


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
        chosen = choose(first, columns, source.name, source.key)
        return [first[n] for n in chosen.wanted] if chosen.named else []
    if source.format == "jsonl":
        first = next(
            ([*strict_json.parse(line)] for _, line in lines_of(source.path, source.name, columns.errors) if not line.isspace()), []
        )
    elif source.format == "parquet":
        import pyarrow.parquet

        first = pyarrow.parquet.read_schema(source.path).names
    return _asked(columns, first, source.name, source.key) if first else []


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
            chosen, width = choose(row, columns, where, source.key), len(row)
            if chosen.named:
                continue
        if len(row) != width:
            yield DataFault.located(where, f"{len(row)} columns, but the first line has {width}")
            continue
        yield Row([row[n] for n in chosen.wanted], where, [None if n is None else row[n] for n in chosen.optional])


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
            names = tuple(usual.get(name or "text", name) for name in columns.names)
            optional = tuple(usual.get(name, name) for name in columns.optional)
            chosen = choose(words[0], Columns(names, header=False, optional=optional), where, source.key)
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
                        yield DataFault.located(where, f"a cell is longer than {format_bytes(limits().line_bytes)}")
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

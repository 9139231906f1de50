"""Read the rows of tables (jsonl, csv, tsv, parquet, CoNLL) as a stream in bounded memory.

Invalid rows raise DataFault with `file:line`; nothing is repaired.
"""

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, NamedTuple

from mini_tf.data.formats.columns import Cell, Columns, index_of, missing_column, resolve_alias, select_columns
from mini_tf.data.formats.conll import is_numbered, sentences
from mini_tf.data.formats.data_files import DataFile
from mini_tf.data.formats.parquet import open_parquet, size_of
from mini_tf.data.formats.text_lines import read_lines
from mini_tf.recipe.data import LABEL_COLUMNS
from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault, raise_first_fault
from mini_tf.system.limits import format_bytes, limits

SIMILAR = 0.8
"""Similarity of a column's name to that of an optional one (difflib's ratio), from which on it seems misspelt."""


class Row(NamedTuple):
    """A table row: a cell for each of Columns.names and of Columns.optional (None where the column is absent)."""

    cells: list[Cell]
    where: str
    optional: list[Cell]


def rows_of(data_file: DataFile, columns: Columns) -> Iterator[Row]:
    """The rows of a table, including empty cells. Raises the first DataFault. Not for txt files."""
    return raise_first_fault(try_rows(data_file, columns))


def try_rows(data_file: DataFile, columns: Columns) -> Iterator[Row | DataFault]:
    """The rows of a table; an invalid row yields its DataFault instead.

    Raises DataFault only where reading cannot continue: a missing column, a quote that is never closed.
    """
    readers = {"jsonl": _jsonl, "csv": _table, "tsv": _table, "parquet": _parquet, "conll": _conll, "conllu": _conll}
    return readers[data_file.format](data_file, columns)


def read_columns(data_file: DataFile, columns: Columns) -> list[str]:
    """The file's own names of the selected columns, from its first row; numbers without a header.

    Empty if there is no choice.
    """
    if data_file.format in ("csv", "tsv"):
        rows = _cells(data_file, columns)
        cells: list[str] = next(filter(None, rows), [])
        if len(cells) < 2:
            return []
        selected = select_columns(cells, columns, f"{data_file.name}:{rows.line_num}", data_file.key)
        return [cells[n] if selected.has_header else str(n) for n in selected.indices]
    first = column_names(data_file, columns)
    return _column_names(columns, first, data_file.name, data_file.key) if first else []


def chosen_columns(data_file: DataFile, columns: Columns, names: Mapping[str, str]) -> str | None:
    """A line on the columns that are read although they have other names, or none; None if all have theirs.

    names: of the columns by role, in their order.
    """
    read = zip(names.items(), read_columns(data_file, columns), strict=False)
    chosen = [f"{role} = {strict_json.short(name)!r}" for (role, expected), name in read if name != expected]
    return f"{data_file.name}: columns read: {', '.join(chosen)}" if chosen else None


def column_names(data_file: DataFile, columns: Columns) -> Sequence[str]:
    """The names of all columns of a file; empty if it has none."""
    if data_file.format in ("csv", "tsv"):
        first: list[str] = next(filter(None, _cells(data_file, columns)), [])
        return first if first and select_columns(first, columns, data_file.name, data_file.key).has_header else []
    if data_file.format == "jsonl":
        lines = read_lines(data_file.path, data_file.name, columns.errors)
        first_line = next((line for line in lines if not line[1].isspace()), None)
        return [] if first_line is None else [*parse_object(first_line[1], f"{data_file.name}:{first_line[0]}")]
    if data_file.format == "parquet":
        with open_parquet(data_file.path, data_file.name) as table:
            return table.names
    return []


def unread_notes(
    data_file: DataFile, columns: Columns, read: Collection[str], further_texts: Collection[str], is_text: bool
) -> Iterator[str]:
    """Notes on columns that are not `read`: a part of the text perhaps (`further_texts`), labels, or misspelt ones."""
    names = column_names(data_file, columns) if further_texts or is_text else ()
    absent = {*columns.optional}.difference(names)
    for name in (name for name in names if name not in read):
        unread = f"{data_file.name}: the column {strict_json.short(name)!r} is not read"
        common_name = name.strip().lower()
        if common_name in further_texts:
            yield f"{unread}, though it may be a part of the input"
        elif is_text and common_name in ("label", *LABEL_COLUMNS):
            yield f"{unread}; labels are for tasks: `minitf finetune`"
        elif near := get_close_matches(common_name, absent, n=1, cutoff=SIMILAR):
            yield f"{unread}; did you mean {near[0]!r}?"


def _column_names(columns: Columns, available: Sequence[str], where: str, key: str) -> list[str]:
    """The names of the selected columns; DataFault if one is not available."""
    names = [
        resolve_alias(name or (available[0] if len(available) == 1 else "text"), available, columns.aliases)
        for name in columns.names
    ]
    for name in names:
        if name not in available:
            raise missing_column(where, name, available, names, key)
    return names


def _jsonl(data_file: DataFile, columns: Columns) -> Iterator[Row | DataFault]:
    resolved = False
    for number, line in read_lines(data_file.path, data_file.name, columns.errors):
        if line.isspace():
            continue
        try:
            row = parse_object(line, where := f"{data_file.name}:{number}")
            if not resolved:  # the first row decides for all
                columns, resolved = _resolve(columns, [*row]), True
            names = _column_names(columns, [*row], where, data_file.key)
            yield Row([row[name] for name in names], where, [row.get(name) for name in columns.optional])
        except DataFault as fault:
            yield fault


def is_json(data_file: DataFile) -> bool:
    """Whether the first line of a file that is not blank is a JSON object, or opens a list of them."""
    lines = read_lines(data_file.path, data_file.name, "replace")
    first = next((line.strip() for _, line in lines if not line.isspace()), "")
    try:
        is_object = first.startswith("{") and bool(parse_object(first, data_file.name))
    except DataFault:
        return False
    return is_object or re.match(r"\[\s*(\{|$)", first) is not None


def _resolve(columns: Columns, available: Sequence[str]) -> Columns:
    """Columns with aliases replaced by the available names."""
    names = [name and resolve_alias(name, available, columns.aliases) for name in columns.names]
    if names == [None] and len(available) > 1 and "text" not in available:
        names = [resolve_alias("text", available, columns.aliases)]
    return replace(columns, names=tuple(names), aliases={})


def parse_object(line: str, where: str) -> dict[str, Any]:
    """The object of a line of jsonl; DataFault if it is not one."""
    try:
        row = strict_json.parse(line)
    except ValueError as error:
        raise DataFault.located(where, f"not valid JSON: {error}") from None
    if not isinstance(row, dict):
        raise DataFault.located(where, f'must be an object such as {{"text": ...}}, not {type(row).__name__}')
    return row


def _table(data_file: DataFile, columns: Columns) -> Iterator[Row | DataFault]:
    """Rows of csv (quotes as in RFC 4180) or tsv (no quoting: a tab ends a cell, a newline ends a row)."""
    reader = _cells(data_file, columns)
    selected, width = None, 0
    while True:
        where = f"{data_file.name}:{reader.line_num + 1}"
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise DataFault.located(where, _csv_problem(error)) from None
        if row is None:
            return
        if not row:
            continue
        if selected is None:
            selected, width = select_columns(row, columns, where, data_file.key), len(row)
            if selected.has_header:
                continue
        if len(row) != width:
            yield DataFault.located(where, f"{len(row)} columns, but the first line has {width}")
            continue
        yield Row([row[n] for n in selected.indices], where, [None if n is None else row[n] for n in selected.optional])


def _cells(data_file: DataFile, columns: Columns) -> Any:
    """A reader of the csv module."""
    csv.field_size_limit(limits().line_bytes)
    lines = (line for _, line in read_lines(data_file.path, data_file.name, columns.errors))
    if data_file.format == "tsv":
        return csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    return csv.reader(lines, strict=True)


def _conll(data_file: DataFile, columns: Columns) -> Iterator[Row | DataFault]:
    """One row per sentence; each cell is a list with one entry per word."""
    selected = None
    for sentence in sentences(data_file, columns.errors):
        if isinstance(sentence, DataFault):
            yield sentence
            continue
        words, where = sentence
        if selected is None:
            width = len(words[0])
            numbered = is_numbered(data_file, columns.errors)
            default = {"text": "1", "label": "3"} if numbered else {"text": "0"}
            if not numbered and width > 1:
                default["label"] = str(width - 1)
                counts = [word[0] for word in words] == [str(n + 1) for n in range(len(words))]
                if counts and len(words) > 1 and {None, "text"} & {*columns.names}:
                    hint = "name the columns: data.fields={text: 1, label: 3}"
                    raise DataFault.located(where, "column 0 has the numbers of the words, not the words", hint=hint)
            names = tuple(default.get(name or "text", name) for name in columns.names)
            optional = tuple(default.get(name, name) for name in columns.optional)
            selected = select_columns(words[0], Columns(names, header=False, optional=optional), where, data_file.key)
        extra = [None if n is None else [word[n] for word in words] for n in selected.optional]
        yield Row([[word[n] for word in words] for n in selected.indices], where, [*extra])


def _parquet(data_file: DataFile, columns: Columns) -> Iterator[Row | DataFault]:
    with open_parquet(data_file.path, data_file.name) as table:
        names = _column_names(columns, table.names, data_file.name, data_file.key)
        read = [name for name in dict.fromkeys([*names, *columns.optional]) if name in table.names]
        for name in read:
            index_of(name, table.names, data_file.name)
        table.check(read)
        number = 0
        for _, values in (row for group in range(len(table.groups)) for row in table.rows(group, read)):
            number += 1
            where = f"{data_file.name}: row {number}"
            if (fault := too_long(values, where)) is not None:
                yield fault
                continue
            row = dict(zip(read, values, strict=True))
            yield Row([row[name] for name in names], where, [row.get(name) for name in columns.optional])


def too_long(cells: Iterable[Any], where: str) -> DataFault | None:
    """A DataFault if a cell exceeds the limit."""
    longest = limits().line_bytes
    is_too_long = any(size_of(cell) > longest for cell in cells)
    return DataFault.located(where, f"a cell is longer than {format_bytes(longest)}") if is_too_long else None


def _csv_problem(error: csv.Error) -> str:
    """The message of a csv error, reworded where the cause is known."""
    known = {
        "new-line character": "a line ends with a bare carriage return; save the file with LF or CRLF line endings",
        "unexpected end of data": "a quote is never closed",
    }
    return next((message for prefix, message in known.items() if str(error).startswith(prefix)), str(error))

"""Selection of the columns of a table: by name, or by number from 0 where the first row is not a header."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, NamedTuple

from mini_tf.data.formats.text_lines import Errors
from mini_tf.recipe.kinds import kinds_of
from mini_tf.system.errors import DataFault
from mini_tf.system.strict_json import short


@cache
def _known_roles() -> frozenset[str]:
    """The column roles of all datasets."""
    datasets: Any = kinds_of("data.datasets").values()
    return frozenset(role for dataset in datasets for role in (*dataset.REQUIRED, *dataset.OPTIONAL))


Aliases = Mapping[str, Sequence[str]]
"""Alternative column names by name, in lower case."""


@dataclass(frozen=True)
class Columns:
    """The columns to read from a table, and how bytes that are not UTF-8 are handled.

    names: column names, or numbers from 0 in a table without a header. None is the column `text`, else the only column.
    In CoNLL, which has no column names, `text` is the first column and `label` the last (in CoNLL-U form and upos).
    header: with "auto" the first row is a header if one of its cells is `text` or a requested name, or if it has at
    least two cells, all different single words that begin with a letter; not if columns are requested by number.
    errors: "replace" reads each invalid byte as U+FFFD. optional: columns that may be absent.
    aliases, numbers: fallbacks for default names: the alternative names (one of them is read if the name itself is
    absent), and the columns of a file without a header.
    """

    names: tuple[str | None, ...] = (None,)
    header: Literal["auto"] | bool = "auto"
    errors: Errors = "strict"
    optional: tuple[str, ...] = ()
    aliases: Aliases = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)


class SelectedColumns(NamedTuple):
    """Indices of the requested and the optional columns (None: absent); has_header: the first row is a header."""

    indices: list[int]
    optional: list[int | None]
    has_header: bool


def resolve_alias(name: str, available: Sequence[str], aliases: Aliases) -> str:
    """`name` if it is available or no alias matches; otherwise the only available column that is an alias of it."""
    matches = [column for column in available if column.strip().lower() in aliases.get(name, ())]
    return matches[0] if name not in available and len(matches) == 1 else name


def select_columns(first: Sequence[str], columns: Columns, where: str, key: str) -> SelectedColumns:
    """Select columns given the first row of a table; key: of its DataFile. Raises DataFault where one is missing."""
    aliases, numbers = columns.aliases, columns.numbers
    names = [name or "text" for name in columns.names]
    if columns.header != "auto":
        has_header = columns.header
    elif numbers:  # default names: a single cell that equals one does not suffice
        has_header = _are_words(first) or all(resolve_alias(name, first, aliases) in first for name in names or numbers)
    else:
        has_header = _is_header(first, names)
    names = [resolve_alias(name, first, aliases) if has_header else numbers.get(name, name) for name in names]
    available = first if has_header else [str(n) for n in range(len(first))]
    optional_names = [name if has_header else numbers.get(name, name) for name in columns.optional]
    optional = [index_of(name, available, where) if name in available else None for name in optional_names]
    if columns.names == (None,) and len(first) == 1:
        return SelectedColumns([0], optional, has_header)
    for name in names:
        if name not in available:
            raise missing_column(where, name, available, names, key) if has_header else _missing_number(where, name, first, names, key)
    return SelectedColumns([index_of(name, available, where) for name in names], optional, has_header)


def _is_header(first: Sequence[str], names: Sequence[str]) -> bool:
    """Whether the first row looks like a header.

    Cells are often numbers, and labels. So a requested number counts as a name only if it is larger than every column
    number, or if the row is 0, 1, 2, ...
    """
    if any(map(_is_number, names)):
        certain = [name for name in names if not _is_number(name) or int(name) >= len(first)]
        counts = len(first) > 1 and list(first) == [str(n) for n in range(len(first))]
        return counts or any(name in first for name in certain)
    return _are_words(first) or any(name in first for name in names)


def _are_words(first: Sequence[str]) -> bool:
    return len(first) > 1 and len(set(first)) == len(first) and all(re.fullmatch(r"[^\W\d]\w*", cell) for cell in first)


def _are_titles(first: Sequence[str]) -> bool:
    """Whether the cells could be column names that contain spaces."""
    return len(first) > 1 and len(set(first)) == len(first) and all(re.fullmatch(r"[^\W\d][\w ]{0,30}", cell) for cell in first)


def index_of(name: str, available: Sequence[str], where: str) -> int:
    """The index of an available column; DataFault if the name is not unique."""
    if available.count(name) > 1:
        raise DataFault.located(where, f"{available.count(name)} columns are named {short(name)!r}")
    return available.index(name)


def missing_column(where: str, name: str, available: Sequence[str], names: Sequence[str], key: str) -> DataFault:
    """The error for a column name that a table with a header does not have."""
    if _is_number(name):
        hint = "this file has column names; for csv and tsv, data.header=false selects columns by number"
    elif len(names) > 1:
        others = [column for column in available if column not in names]
        found = {one: [one] if one in available else get_close_matches(one.lower(), others, n=1) for one in names}
        if set(names) <= _known_roles():
            fields = _fields(key, {role: short(near[0]) if near else "COLUMN" for role, near in found.items()})
            hint = f"name the columns with {fields}"
        elif name in _known_roles() and not found.get(name):
            hint = f"name the column with {_fields(key, {name: 'COLUMN'})}"
        else:
            option = "--fields" if key[:1] == "-" else "data.fields"
            hint = f"did you mean {short(found[name][0])!r}?" if found.get(name) else f"name the columns with {option}"
    else:
        hint = f"name the text column with {_fields(key, {'text': 'COLUMN'})}" if available else ""
    return DataFault.located(where, f"no column {short(name)!r}; the columns are: {_listed(available)}", hint=hint or None)


def _missing_number(where: str, name: str, first: Sequence[str], names: Sequence[str], key: str) -> DataFault:
    """The error for a table without a header. The hint guesses columns by length: a text is longer than its label."""
    by_length = sorted(range(len(first)), key=lambda n: len(first[n]), reverse=True)
    order = [by_length[0], by_length[-1]] if "text" in names else range(len(first))
    hint = "in a file without a header, select columns by number from 0"
    if set(names) <= _known_roles() and len(names) <= len(first):
        hint = _fields(key, {role: str(n) for role, n in zip(names, order, strict=False)})
    available = _listed([str(n) for n in range(len(first))])
    if _are_titles(first) and set(names) <= _known_roles():
        near = {role: next((cell for cell in first if role in cell.lower()), "COLUMN") for role in names}
        hint += f"; or, if the first row is a header, {_fields(key, near)}" if {*near.values()} != {"COLUMN"} else ""
    if len(first) == 1 and ";" in first[0]:
        hint = "cells must be separated by commas (csv) or tabs (tsv), not semicolons"
    return DataFault.located(where, f"no column {short(name)!r}; the columns are: {available} (no header)", hint=hint)


def _fields(key: str, columns: Mapping[str, str]) -> str:
    """The setting that names the columns: data.fields, or --fields where an option named the file."""
    fields = "{" + ", ".join(f"{role}: {column}" for role, column in columns.items()) + "}"
    return f"--fields '{fields}'" if key.startswith("-") else f"'data.fields={fields}'"


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(short, columns[:20])) + (", ..." if len(columns) > 20 else "") or "none"


def _is_number(column: str) -> bool:
    return re.fullmatch("[0-9]{1,9}", column) is not None

"""Columns of a table, by name, or by number from 0 where the first row is not a header; and the values of their cells.

Invalid cells raise DataFault with the row's location (`where`) and the column's `name`; nothing is repaired.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar

from mini_tf.data.formats.text_lines import Errors
from mini_tf.recipe.kinds import kinds_of
from mini_tf.system.errors import DataFault
from mini_tf.system.strict_json import short

Cell = str | int | float | bool | list[Any] | dict[str, Any] | None
"""A str in csv and tsv, a list of str (one per word) in CoNLL, any JSON value in jsonl and parquet."""

TextOrList = TypeVar("TextOrList", str, list[Any])

ROLES = ("system", "user", "assistant")
"""Valid roles of chat messages."""
WHITESPACE = re.compile(r"[^\S\u00a0\u2007\u202f]")
"""What a word cannot contain: whitespace, except the spaces that do not separate words (`10 000` is one in French)."""
SEPARATORS = (
    "cells must be separated by commas (csv) or tabs (tsv), not semicolons: tr ';' '\\t' < FILE > FILE.tsv; with"
    " data.header=false if the first row is no header"
)
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def text_of(cell: Cell, where: str, name: str) -> str:
    """A text, or the non-empty texts of a list joined by spaces. May be empty."""
    if isinstance(cell, list):
        return " ".join(text for text in (_str(each, where, name) for each in cell) if text.strip())
    return _str(cell, where, name)


def texts_of(cell: Cell, where: str, name: str) -> list[str]:
    """Alternative texts (references), at least one; empty texts in a list are dropped."""
    texts = cell if isinstance(cell, list) else [cell]
    return _non_empty([text for text in (_str(each, where, name) for each in texts) if text.strip()], where, name)


def words_of(cell: Cell, where: str, name: str) -> list[str]:
    """The words of a list, or of a text split at whitespace; at least one."""
    words = [_str(each, where, name) for each in cell] if isinstance(cell, list) else _str(cell, where, name).split()
    for number, word in enumerate(_non_empty(words, where, name), 1):
        if not word.strip() or WHITESPACE.search(word):
            problem = "is empty" if not word.strip() else f"{short(word)!r} contains whitespace"
            raise DataFault.located(where, f"{short(name)!r}: word {number} {problem}")
    return words


def label_of(cell: Cell, where: str, name: str) -> str:
    """A class label: a text stripped of whitespace, or a number in JSON notation (1.0 becomes 1)."""
    if isinstance(cell, float):
        cell = _finite(cell, where, name)
        return str(int(cell)) if cell.is_integer() else json.dumps(cell)
    if isinstance(cell, bool | int):
        return json.dumps(cell)
    return _non_empty(_str(cell, where, name, "text or a number").strip(), where, name)


def labels_of(cell: Cell, where: str, name: str) -> list[str]:
    """A label for each entry of a list, or for each word of a text split at whitespace; at least one."""
    parts = cell if isinstance(cell, list) else _str(cell, where, name).split()
    return [label_of(each, where, name) for each in _non_empty(parts, where, name)]


def number_of(cell: Cell, where: str, name: str) -> float:
    """A finite number, or a text that is a decimal number such as 1, -0.5 or 1e-3."""
    if isinstance(cell, str):
        text = _non_empty(_str(cell, where, name).strip(), where, name)
        if not NUMBER.fullmatch(text):
            raise DataFault.located(where, f"{short(name)!r} must be a number, not {short(text)!r}")
        return _finite(float(text), where, name)
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        raise _wrong_type(cell, where, name, "a number")
    try:
        return _finite(float(cell), where, name)
    except OverflowError:
        return _finite(math.inf, where, name)


def messages_of(cell: Cell, where: str, name: str) -> list[tuple[str, str]]:
    """Chat messages as (role, content); at least one is from the assistant."""
    expected = 'a list of {"role": ..., "content": ...}'
    if not isinstance(cell, list):
        raise _wrong_type(cell, where, name, expected)
    messages = []
    for number, message in enumerate(cell, 1):
        if not isinstance(message, dict):
            raise _wrong_type(message, where, name, expected, number)
        for key in ("role", "content"):
            if key not in message:
                raise DataFault.located(where, f"{short(name)!r}: message {number} has no {key!r}")
        role, content = message["role"], _str(message["content"], where, f"{short(name)}: content of message {number}")
        if role not in ROLES:
            problem = (
                f"the role of message {number} must be {', '.join(ROLES[:-1])} or {ROLES[-1]}, not {short(str(role))!r}"
            )
            raise DataFault.located(where, f"{short(name)!r}: {problem}")
        if not content.strip():
            fault = f"{short(name)!r}: the content of message {number} is empty"
            raise DataFault.located(where, fault, hint="remove the row")
        messages.append((role, content))
    if all(role != "assistant" for role, _ in messages):
        raise DataFault.located(where, f"{short(name)!r} has no assistant message to train on")
    return messages


def _str(value: object, where: str, name: str, expected: str = "text") -> str:
    if not isinstance(value, str):
        raise _wrong_type(value, where, name, expected)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataFault.located(where, f"{short(name)!r} contains invalid Unicode (half of a surrogate pair)") from None
    return value


def _finite(number: float, where: str, name: str) -> float:
    if not math.isfinite(number):
        raise DataFault.located(where, f"{short(name)!r} is not a finite number")
    return number


def _wrong_type(value: object, where: str, name: str, expected: str, message: int | None = None) -> DataFault:
    part = f": message {message}" if message else ""
    kind = "null" if value is None else type(value).__name__
    is_message = expected == "text" and isinstance(value, dict) and "role" in value
    hint = "chats are for the objective instruct, as in the recipe instruct-nano" if is_message else None
    return DataFault.located(where, f"{short(name)!r}{part} must be {expected}, not {kind}", hint=hint)


def _non_empty(value: TextOrList, where: str, name: str) -> TextOrList:
    if not value:
        raise DataFault.located(where, f"{short(name)!r} is empty", hint="remove the row")
    return value


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
    if columns.header == "auto" and len(first) == 1 and _are_words(first[0].split(";")):
        raise DataFault.located(where, f"a single column, {short(first[0])!r}", hint=SEPARATORS)
    aliases, numbers = columns.aliases, columns.numbers
    names = [name or "text" for name in columns.names]
    if columns.header != "auto":
        has_header = columns.header
    elif numbers:  # default names: a single cell that equals one does not suffice
        has_header = _are_words(first) or all(resolve_alias(name, first, aliases) in first for name in names or numbers)
        has_header = has_header or (len(first) == 1 and first[0].strip().lower() in _known_roles())
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
            if not has_header:
                raise _missing_number(where, name, first, names, key)
            fault = missing_column(where, name, available, names, key)
            if columns.header == "auto" and len(names) > 1 and set(names) <= _known_roles() and key[:1] != "-":
                numbered = _fields(key, _by_length(first, names))
                fault.hint = f"{fault.hint}; or, if the first row is no header, data.header=false {numbered}"
            raise fault
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


def _are_words(first: Sequence[str], pattern: str = r"[^\W\d]\w*") -> bool:
    return len(first) > 1 and len(set(first)) == len(first) and all(re.fullmatch(pattern, cell) for cell in first)


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
        nearest = {
            each: [each] if each in available else get_close_matches(each.lower(), others, n=1) for each in names
        }
        if set(names) <= _known_roles():
            fields = _fields(key, {role: short(near[0]) if near else "COLUMN" for role, near in nearest.items()})
            hint = f"name the columns with {fields}"
        elif name in _known_roles() and not nearest.get(name):
            hint = f"name the column with {_fields(key, {name: 'COLUMN'})}"
        else:
            hint = f"name the columns with {fields_setting(key)}"
            hint = f"did you mean {short(nearest[name][0])!r}?" if nearest.get(name) else hint
    else:
        hint = f"name the text column with {_fields(key, {'text': 'COLUMN'})}" if available else ""
    fault = f"no column {short(name)!r}; the columns are: {_listed(available)}"
    return DataFault.located(where, fault, hint=hint or None)


def _missing_number(where: str, name: str, first: Sequence[str], names: Sequence[str], key: str) -> DataFault:
    """The error for a table without a header."""
    hint = "in a file without a header, select columns by number from 0"
    if set(names) <= _known_roles() and len(names) <= len(first):
        hint = _fields(key, _by_length(first, names))
    available = _listed([str(n) for n in range(len(first))])
    if _are_words(first, r"[^\W\d][\w ]{0,30}") and set(names) <= _known_roles():  # column names with spaces
        near = {role: next((cell for cell in first if role in cell.lower()), "COLUMN") for role in names}
        hint += f"; or, if the first row is a header, {_fields(key, near)}" if {*near.values()} != {"COLUMN"} else ""
    if len(first) == 1 and ";" in first[0]:
        hint = SEPARATORS
    return DataFault.located(where, f"no column {short(name)!r}; the columns are: {available} (no header)", hint=hint)


def _by_length(first: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """The number of a column for each role, guessed by length: a text is longer than its label."""
    by_length = sorted(range(len(first)), key=lambda n: len(first[n]), reverse=True)
    order = [by_length[0], by_length[-1]] if "text" in names else range(len(first))
    return {role: str(n) for role, n in zip(names, order, strict=False)}


def _fields(key: str, columns: Mapping[str, str]) -> str:
    """The setting that names the columns: data.fields, or --fields where an option named the file."""
    fields = "{" + ", ".join(f"{role}: {column}" for role, column in columns.items()) + "}"
    return f"--fields '{fields}'" if key.startswith("-") else f"'data.fields={fields}'"


def fields_setting(key: str) -> str:
    """The name of the setting that names the columns of a file. key: of the file, an option or a key of the recipe."""
    return "--fields" if key.startswith("-") else "data.fields"


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(short, columns[:20])) + (", ..." if len(columns) > 20 else "") or "none"


def _is_number(column: str) -> bool:
    return re.fullmatch("[0-9]{1,9}", column) is not None

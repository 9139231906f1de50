"""Which columns of a table are read: by their names, or by number from 0 where the first line names none."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, NamedTuple

from mini_tf.data.formats.lines import Errors
from mini_tf.recipe.kinds import kinds_of
from mini_tf.system.errors import DataFault
from mini_tf.system.strict_json import short


@cache
def _roles() -> frozenset[str]:
    """What columns may hold, of all datasets."""
    datasets: Any = kinds_of("data.datasets").values()
    return frozenset(role for dataset in datasets for role in (*dataset.REQUIRED, *dataset.OPTIONAL))


Likely = Mapping[str, Sequence[str]]
"""By a name that is asked for, what the same column is often called, in small letters."""


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


class Chosen(NamedTuple):
    """wanted: the indices of the columns asked for; optional: of those that there may be, None where there is none such.

    named: whether the first row names the columns, and is no data.
    """

    wanted: list[int]
    optional: list[int | None]
    named: bool


def meant(name: str, there: Sequence[str], likely: Likely) -> str:
    """The column that a name stands for: itself, else the only one that is called as such columns often are, else itself all the same."""
    others = [column for column in there if column.strip().lower() in likely.get(name, ())]
    return others[0] if name not in there and len(others) == 1 else name


def choose(first: Sequence[str], columns: Columns, where: str, key: str) -> Chosen:
    """Find the columns in the first row of a table; key: of its Source. DataFault where one is missing."""
    likely, numbers = columns.likely, columns.numbers
    wanted = [name or "text" for name in columns.names]
    if columns.header != "auto":
        named = columns.header
    elif numbers:  # so a single cell that is called as a column is proves nothing
        named = _are_words(first) or all(meant(name, first, likely) in first for name in wanted or numbers)
    else:
        named = _names_columns(first, wanted)
    wanted = [meant(name, first, likely) if named else numbers.get(name, name) for name in wanted]
    there = first if named else [str(n) for n in range(len(first))]
    there_may_be = [name if named else numbers.get(name, name) for name in columns.optional]
    more = [place_of(name, there, where) if name in there else None for name in there_may_be]
    if columns.names == (None,) and len(first) == 1:
        return Chosen([0], more, named)
    for name in wanted:
        if name not in there:
            raise no_column(where, name, there, wanted, key) if named else _no_number(where, name, first, wanted, key)
    return Chosen([place_of(name, there, where) for name in wanted], more, named)


def _names_columns(first: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the first row seems to name the columns. Cells are often numbers, and labels: a number is a name only where it can be
    nothing else, being larger than any column's, or where the row counts the columns itself."""
    if any(map(_is_number, wanted)):
        named = [name for name in wanted if not _is_number(name) or int(name) >= len(first)]
        counts = len(first) > 1 and list(first) == [str(n) for n in range(len(first))]
        return counts or any(name in first for name in named)
    return _are_words(first) or any(name in first for name in wanted)


def _are_words(first: Sequence[str]) -> bool:
    return len(first) > 1 and len(set(first)) == len(first) and all(re.fullmatch(r"[^\W\d]\w*", cell) for cell in first)


def _are_titles(first: Sequence[str]) -> bool:
    """Whether the cells might be names of columns, with blanks in them."""
    return len(first) > 1 and len(set(first)) == len(first) and all(re.fullmatch(r"[^\W\d][\w ]{0,30}", cell) for cell in first)


def place_of(name: str, there: Sequence[str], where: str) -> int:
    """The index of a name that is there; DataFault where it stands twice."""
    if there.count(name) > 1:
        raise DataFault.located(where, f"{there.count(name)} columns are called {short(name)!r}")
    return there.index(name)


def no_column(where: str, name: str, there: Sequence[str], wanted: Sequence[str], key: str) -> DataFault:
    """What is said where columns have names and this is none of them."""
    if _is_number(name):
        hint = "here columns have names; in csv and tsv data.header=false asks for them by number"
    elif len(wanted) > 1:
        others = [column for column in there if column not in wanted]
        found = {one: [one] if one in there else get_close_matches(one.lower(), others, n=1) for one in wanted}
        if set(wanted) <= _roles():
            says = _fields(key, {role: short(near[0]) if near else "COLUMN" for role, near in found.items()})
            hint = f"{says} says which they are"
        else:
            says = "--fields" if key[:1] == "-" else "data.fields"
            hint = f"did you mean {short(found[name][0])!r}?" if found.get(name) else f"{says} says which they are"
    else:
        hint = f"say which one is the text: {_fields(key, {'text': 'COLUMN'})}" if there else ""
    return DataFault.located(where, f"no column {short(name)!r}; there are: {_listed(there)}", hint=hint or None)


def _no_number(where: str, name: str, first: Sequence[str], wanted: Sequence[str], key: str) -> DataFault:
    """Where columns have numbers only: which of them it might be, as the first row has it. A text is longer than its label."""
    by_length = sorted(range(len(first)), key=lambda n: len(first[n]), reverse=True)
    order = [by_length[0], by_length[-1]] if "text" in wanted else range(len(first))
    hint = "without a header columns are asked for by number, from 0"
    if set(wanted) <= _roles() and len(wanted) <= len(first):
        hint = _fields(key, {role: str(n) for role, n in zip(wanted, order, strict=False)})
    there = _listed([str(n) for n in range(len(first))])
    if _are_titles(first) and set(wanted) <= _roles():
        near = {role: next((cell for cell in first if role in cell.lower()), "COLUMN") for role in wanted}
        names = f"; or, if the row names the columns, {_fields(key, near)}" if {*near.values()} != {"COLUMN"} else ""
        hint += names
    if len(first) == 1 and ";" in first[0]:
        hint = "cells are parted by commas (csv) or tabs (tsv), not by semicolons"
    return DataFault.located(where, f"no column {short(name)!r}; there are: {there} (no header)", hint=hint)


def _fields(key: str, columns: Mapping[str, str]) -> str:
    """How the columns of a file are named, in a recipe or, where an option named the file, by an option."""
    named = "{" + ", ".join(f"{role}: {column}" for role, column in columns.items()) + "}"
    return f"--fields '{named}'" if key.startswith("-") else f"'data.fields={named}'"


def _listed(there: Sequence[str]) -> str:
    return ", ".join(map(short, there[:20])) + (", ..." if len(there) > 20 else "") or "none"


def _is_number(column: str) -> bool:
    return re.fullmatch("[0-9]{1,9}", column) is not None

"""Pairs of a source and a target: two files whose lines belong together, or the rows of a table; read as a stream.

Nothing is repaired: a side that is empty, or has no partner, is refused with its file and line. Which pairs are held out is
decided by a hash of the source alone, so that no source stands on both sides of a split.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mini_tf.data.formats.cells import text_of, texts_of
from mini_tf.data.formats.documents import Columns, Row, rows_of
from mini_tf.data.formats.lines import lines_of
from mini_tf.data.formats.sources import Source, find
from mini_tf.recipe import sections
from mini_tf.recipe.data import TwoFiles
from mini_tf.system.errors import DataFault

FIELDS = ("source", "target")
ALIGNMENT = "alignment"
"""The column of a table that holds links between words, Pharaoh's `0-0 1-2`."""


class Pair(NamedTuple):
    """`where` names the line that the pair, or its source, stands in; alignment: links between words, where the data have some.

    further: other targets that are as good; `target` is the one that is learnt.
    """

    source: str
    target: str
    where: str
    alignment: str | None = None
    further: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """All targets, the learnt one first."""
        return self.target, *self.further


@dataclass(frozen=True)
class PairFiles:
    """Where pairs are: lines of (source, target) files, or the rows of tables."""

    lines: list[tuple[Source, Source]]
    tables: list[Source]

    @property
    def sources(self) -> list[Source]:
        """All files, in order."""
        return [*itertools.chain.from_iterable(self.lines), *self.tables]

    def read(self, columns: Columns) -> Iterator[Pair]:
        """All pairs; DataFault at the first that lacks a side."""
        for source, target in self.lines:
            yield from _aligned(source, target, columns)
        for table in self.tables:
            yield from (_pair(row, columns) for row in rows_of(table, columns))


def columns_of(data: sections.Data) -> Columns:
    """The columns that hold both sides, called source and target unless data.fields says otherwise."""
    names = tuple(data.fields.get(role, role) for role in FIELDS)
    return Columns(names, data.header, data.errors, (ALIGNMENT,))


def _pair(row: Row, columns: Columns) -> Pair:
    source_name, target_name = (name or role for name, role in zip(columns.names, FIELDS, strict=True))
    target, *further = texts_of(row.cells[1], row.where, target_name)
    source, [links] = text_of(row.cells[0], row.where, source_name), row.optional
    if not source.strip():
        raise DataFault(f"{row.where}: {source_name!r} is empty", hint="take the row out", where=(row.where,))
    return Pair(source, target, row.where, None if links is None else text_of(links, row.where, ALIGNMENT), tuple(further))


def find_pairs(spec: object, key: str) -> PairFiles:
    """The files behind data.train or data.val of pairs; DataFault where one is missing, or cannot hold pairs."""
    if not isinstance(spec, TwoFiles):
        tables = find(spec, key)
        for table in tables:
            if table.format in ("txt", "conll", "conllu"):
                hint = "two files of lines are given as {source: FILE, target: FILE}"
                raise DataFault(f"{key}: {table.name} is no table (jsonl, csv, tsv, parquet)", hint=hint, where=(table.name,))
        return PairFiles([], tables)
    sides = [find(getattr(spec, role), f"{key}.{role}") for role in FIELDS]
    for role, files in zip(FIELDS, sides, strict=True):
        for file in files:
            if file.format != "txt":
                hint = "a table is given alone, with data.fields={source: COLUMN, target: COLUMN}"
                raise DataFault(f"{key}.{role}: {file.name} is read as {file.format}, not by lines", hint=hint, where=(file.name,))
    if len(sides[0]) != len(sides[1]):
        raise DataFault(f"{key}: {len(sides[0])} files of sources, {len(sides[1])} of targets; each needs its partner")
    return PairFiles(list(zip(*sides, strict=True)), [])


def _aligned(source: Source, target: Source, columns: Columns) -> Iterator[Pair]:
    sides = [lines_of(file.path, file.name, columns.errors) for file in (source, target)]
    for pair in itertools.zip_longest(*sides):
        if None in pair:
            short, long, number = (source, target, pair[1][0]) if pair[0] is None else (target, source, pair[0][0])
            n_long = number + sum(1 for side in sides for _ in side)
            told = f"{long.name}:{number}: this line has no partner: it has {n_long:,} lines, {short.name} {number - 1:,}"
            hint = "both files must have the same number of lines, each the partner of the other"
            raise DataFault(told, hint=hint, where=(f"{long.name}:{number}",))
        (number, source_line), (_, target_line) = pair
        for file, line in ((source, source_line), (target, target_line)):
            if not line.strip():
                where = f"{file.name}:{number}"
                raise DataFault(f"{where}: the line is empty", hint="take the line out of both files", where=(where,))
        yield Pair(source_line.removesuffix("\n"), target_line.removesuffix("\n"), f"{source.name}:{number}")


def by_source(pair: Pair) -> str:
    """What decides which side of a split a pair stands on."""
    return pair.source


def whole(pair: Pair) -> str:
    """What a pair is known again by."""
    return f"{len(pair.source)} {pair.source}{pair.target}"


def size(pair: Pair) -> int:
    """Characters of both sides."""
    return len(pair.source) + len(pair.target)

"""Pairs of a source and a target: two files whose lines belong together, or the rows of a table; read as a stream.

Nothing is repaired: a side that is empty, or has no partner, is refused with its file and line. Which pairs are held out is
decided by a hash of the source alone, so that no source stands on both sides of a split.
"""

import itertools
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mini_tf.errors import DataFault
from mini_tf.recipe import sections
from mini_tf.recipe.data import TwoFiles
from mini_tf.text.cells import text_of, texts_of
from mini_tf.text.formats import Columns, Row, rows_of
from mini_tf.text.lines import lines_of
from mini_tf.text.sources import Source, find
from mini_tf.text.split import FEW, Side, hash_text

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


@dataclass(frozen=True)
class PairDivision:
    """Every pair with its side, as often as asked; `characters` of all; `notes` for people."""

    read: Callable[[], Iterator[tuple[Side, Pair]]]
    characters: int
    notes: tuple[str, ...] = ()


def divide(pairs: Callable[[], Iterator[Pair]], share: float) -> PairDivision:
    """Hold out about this share of the sources, by hash; of few the last ones."""
    hashes, characters = _scan(pairs(), by_source=True)
    distinct = np.unique(hashes)
    if len(distinct) < 2:
        raise DataFault(f"data.train: {len(distinct)} different sources; at least 2 are needed, one of them to be held out")
    if len(distinct) < FEW:
        last = int(hashes[-1])
        held = PairDivision(lambda: _by(pairs(), lambda hashed: hashed == last), characters)
        return replace(held, notes=(f"fewer than {FEW} different sources: the last is held out",))
    # At least the smallest hash is held out and at least the largest is not.
    threshold = min(max(int(share * 2**64), int(distinct[0]) + 1), int(distinct[-1]))
    return PairDivision(lambda: _by(pairs(), lambda hashed: hashed < threshold), characters)


def keep_apart(train: Callable[[], Iterator[Pair]], val: Callable[[], Iterator[Pair]]) -> PairDivision:
    """Two texts that were given; a pair of `val` that stands in `train` too, source and target, is left out of `val`."""
    train_hashes, n_train = _scan(train(), by_source=False)
    val_hashes, n_val = _scan(val(), by_source=False)
    for key, n in (("data.train", n_train), ("data.val", n_val)):
        if not n:
            raise DataFault(f"{key}: there are no pairs in it")
    shared = np.isin(val_hashes, np.unique(train_hashes))
    if shared.all():
        hint = "leave data.val out: a part is then held out"
        raise DataFault(f"data.val: all of its {len(shared)} pairs also stand in data.train", hint=hint)
    known = frozenset(val_hashes[shared].tolist())

    def read() -> Iterator[tuple[Side, Pair]]:
        yield from (("train", pair) for pair in train())
        yield from (("val", pair) for pair in val() if not known or _hash(pair, by_source=False) not in known)

    told = f"{int(shared.sum())} of {len(shared)} pairs of data.val also stand in data.train; they were left out of it"
    return PairDivision(read, n_train + n_val, (told,) if known else ())


def _hash(pair: Pair, by_source: bool) -> int:
    return hash_text(pair.source if by_source else f"{len(pair.source)} {pair.source}{pair.target}")


def _scan(pairs: Iterator[Pair], by_source: bool) -> tuple[np.ndarray, int]:
    """The hash of every pair (uint64), and the number of characters of all."""
    hashes, characters = array("Q"), 0
    for pair in pairs:
        characters += len(pair.source) + len(pair.target)
        hashes.append(_hash(pair, by_source))
    return np.array(hashes, np.uint64), characters


def _by(pairs: Iterator[Pair], held_out: Callable[[int], bool]) -> Iterator[tuple[Side, Pair]]:
    for pair in pairs:
        yield "val" if held_out(_hash(pair, by_source=True)) else "train", pair

"""Gold word alignments in Pharaoh format: `0-0 1-2` per line, source and target word, counted from 0 at white space.

`i-j` is a sure alignment point, `i?j` a possible one; sure points are also possible (Och and Ney 2003, section 4.2).
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from mini_tf.data.examples import Pair
from mini_tf.data.formats.text_lines import read_lines
from mini_tf.system.errors import DataFault

AlignmentPoint = tuple[int, int]
"""Indices of a source word and of the target word aligned to it."""

_POINT = re.compile(r"([0-9]{1,6})([-?])([0-9]{1,6})")


class GoldAlignment(NamedTuple):
    """Human alignment of a pair; `possible` includes `sure`."""

    sure: frozenset[AlignmentPoint]
    possible: frozenset[AlignmentPoint]


def parse_alignment(line: str, where: str, pair: Pair) -> GoldAlignment:
    """Parse a line. Raises DataFault for invalid points or missing words."""
    counts = {"source": len(pair.source.split()), "target": len(pair.target.split())}
    sure, possible = set(), set()
    for part in line.split():
        found = _POINT.fullmatch(part)
        if found is None:
            hint = "write i-j for a sure or i?j for a possible one: source word and target word, from 0"
            raise DataFault(f"{where}: {part[:40]!r} is not an alignment", hint=hint, where=[where])
        point = int(found[1]), int(found[3])
        for number, (name, count) in zip(point, counts.items(), strict=True):
            if number >= count:
                words = f"its words are 0 to {count - 1}" if count else "it has no words"
                raise DataFault(f"{where}: {part}: there is no word {number} in the {name}; {words}", where=[where])
        possible.add(point)
        if found[2] == "-":
            sure.add(point)
    return GoldAlignment(frozenset(sure), frozenset(possible))


def read_alignments(file: Path, pairs: Sequence[Pair]) -> list[GoldAlignment]:
    """Read a file with one line per pair. Raises DataFault for another number of lines, or if it cannot be read."""
    gold: list[GoldAlignment] = []
    number = 0
    try:
        for number, line in read_lines(file, str(file), "strict"):
            if number <= len(pairs):
                gold.append(parse_alignment(line, f"{file}:{number}", pairs[number - 1]))
    except (OSError, ValueError) as error:
        raise DataFault(f"{file}: {getattr(error, 'strerror', None) or error}", where=[str(file)]) from error
    if number != len(pairs):
        where = f"{file}:{min(number, len(pairs)) + 1}"
        hint = "it must have one line per pair, empty if no words are aligned"
        raise DataFault(
            f"{where}: {file} has {number:,} lines, but there are {len(pairs):,} pairs", hint=hint, where=[where]
        )
    if not any(one.possible for one in gold):
        raise DataFault(
            f"{file}: no alignments", hint="write i-j, as in 0-0 1-2, for words counted from 0", where=[str(file)]
        )
    return gold


def dataset_alignments(pairs: Sequence[Pair]) -> list[GoldAlignment | None]:
    """The alignments in the data; None for a pair without one."""
    return [None if pair.alignment is None else parse_alignment(pair.alignment, pair.where, pair) for pair in pairs]


def format_alignment(points: Iterable[AlignmentPoint]) -> str:
    """The line of a pair, sorted by target word."""
    return " ".join(f"{i}-{j}" for i, j in sorted(points, key=lambda point: (point[1], point[0])))


def diagonal(n_source: int, n_target: int) -> frozenset[AlignmentPoint]:
    """Baseline: monotonic alignment of each target word to the source word at the same relative position."""
    return frozenset((int((j + 0.5) * n_source / n_target), j) for j in range(n_target)) if n_source else frozenset()

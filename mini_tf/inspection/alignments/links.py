"""Links between the words of a pair, in Pharaoh's form: `0-0 1-2` a line, source word and target word, counted from 0 by the blanks.

A link `i-j` is sure, `i?j` possible only; what is sure is possible too (Och and Ney 2003, section 4.2).
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from mini_tf.data.examples import Pair
from mini_tf.data.formats.text_lines import read_lines
from mini_tf.system.errors import DataFault

Link = tuple[int, int]
"""The number of the source word, and of the target word."""

_LINK = re.compile(r"([0-9]{1,6})([-?])([0-9]{1,6})")


class Gold(NamedTuple):
    """What people say of a pair; `possible` holds what is sure, too."""

    sure: frozenset[Link]
    possible: frozenset[Link]


def parse(line: str, where: str, pair: Pair) -> Gold:
    """The links of a pair; DataFault where the line holds anything else, or a word that the pair does not have."""
    counts = {"source": len(pair.source.split()), "target": len(pair.target.split())}
    sure, possible = set(), set()
    for part in line.split():
        found = _LINK.fullmatch(part)
        if found is None:
            hint = "write i-j, or i?j for a possible link: source word and target word, from 0"
            raise DataFault(f"{where}: {part[:40]!r} is no link", hint=hint, where=[where])
        link = int(found[1]), int(found[3])
        for number, (side, count) in zip(link, counts.items(), strict=True):
            if number >= count:
                there = f"its words are 0 to {count - 1}" if count else "it has no word"
                raise DataFault(f"{where}: {part}: there is no word {number} in the {side}; {there}", where=[where])
        possible.add(link)
        if found[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


def read(file: Path, pairs: Sequence[Pair]) -> list[Gold]:
    """A file with a line a pair; DataFault where there are fewer or more, or no file that can be read."""
    found: list[Gold] = []
    number = 0
    try:
        for number, line in read_lines(file, str(file), "strict"):
            if number <= len(pairs):
                found.append(parse(line, f"{file}:{number}", pairs[number - 1]))
    except (OSError, ValueError) as error:
        raise DataFault(f"{file}: {getattr(error, 'strerror', None) or error}", where=[str(file)]) from error
    if number != len(pairs):
        where = f"{file}:{min(number, len(pairs)) + 1}"
        hint = "it must have a line for every pair, an empty one where there is no link"
        raise DataFault(f"{where}: {file} has {number:,} lines, but there are {len(pairs):,} pairs", hint=hint, where=[where])
    if not any(gold.possible for gold in found):
        raise DataFault(f"{file}: there is no link in it", hint="write i-j, as in 0-0 1-2, for words counted from 0", where=[str(file)])
    return found


def own(pairs: Sequence[Pair]) -> list[Gold | None]:
    """The links that come with the data; None for a pair without any field of them."""
    return [None if pair.alignment is None else parse(pair.alignment, pair.where, pair) for pair in pairs]


def written(links: Iterable[Link]) -> str:
    """The line of a pair, in the order of its target words."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links, key=lambda link: (link[1], link[0])))


def diagonal(n_source: int, n_target: int) -> frozenset[Link]:
    """The guess that nothing changes places: for each target word the source word as far on its way."""
    return frozenset((int((j + 0.5) * n_source / n_target), j) for j in range(n_target)) if n_source else frozenset()

"""Minimal pairs: an acceptable and an unacceptable sentence, in BLiMP's format.

A row has `sentence_good` and `sentence_bad`, and may have `UID` and `linguistics_term`, the names of its paradigm and
phenomenon. Source: Warstadt et al. 2020, arXiv:1912.00582.
"""

from collections.abc import Iterable
from typing import NamedTuple

from mini_tf.data.formats.columns import Columns
from mini_tf.data.formats.data_files import find_files
from mini_tf.data.formats.tables import rows_of
from mini_tf.system.errors import DataFault

SENTENCES, GROUPS = ("sentence_good", "sentence_bad"), ("UID", "linguistics_term")


class MinimalPair(NamedTuple):
    """where: file and line. groups: its names by the columns of GROUPS that it has."""

    good: str
    bad: str
    where: str
    groups: dict[str, str]


def read_pairs(specs: Iterable[str], key: str = "--pairs") -> list[MinimalPair]:
    """The pairs of files or globs: jsonl, or another table by its suffix. DataFault with the file and the line."""
    pairs: list[MinimalPair] = []
    for file in (file for spec in specs for file in find_files(spec, key)):
        before = len(pairs)
        if file.format == "txt":
            hint = f'lines such as {{"{SENTENCES[0]}": "...", "{SENTENCES[1]}": "..."}}'
            fault = f"{key}: {file.name}: must be a table of pairs, with the suffix .jsonl"
            raise DataFault(fault, hint=hint, where=(file.name,))
        for row in rows_of(file, Columns((), header=True, optional=(*SENTENCES, *GROUPS))):
            for name, cell in zip(SENTENCES, row.optional, strict=False):
                if not isinstance(cell, str) or not cell.strip():
                    message = f"no {name}" if cell is None else f"{name} must be a sentence, not {str(cell)[:40]!r}"
                    raise DataFault.located(row.where, message, hint=f"a pair has {' and '.join(SENTENCES)}")
            good, bad, *names = row.optional
            groups = {name: str(cell) for name, cell in zip(GROUPS, names, strict=True) if cell not in (None, "")}
            pairs.append(MinimalPair(str(good), str(bad), row.where, groups))
        if len(pairs) == before:
            raise DataFault(f"{key}: {file.name} has no pairs", where=(file.name,))
    return pairs

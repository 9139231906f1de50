"""The files of a corpus as one line of places: any part of it is read by seeking, and nothing of it is stored."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mini_tf.data.formats.columns import Columns
from mini_tf.data.formats.data_files import DataFile
from mini_tf.data.formats.documents import Document
from mini_tf.data.formats.ranges import Shard, open_shard, read_range
from mini_tf.data.formats.text_lines import Errors
from mini_tf.system.cache import hash_of
from mini_tf.system.errors import DataFault
from mini_tf.system.plain_file import open_plain
from mini_tf.system.strict_json import short

HASHED_PARTS, HASHED_BYTES = 16, 4096
"""Of each file so many parts of so many bytes are hashed, evenly spaced, with its beginning and its end."""


_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Shards:
    """Files in their order. Place n of the corpus is place n - starts[i] of shard i."""

    shards: Sequence[Shard]
    errors: Errors

    @classmethod
    def open(cls, files: Sequence[DataFile], columns: Columns) -> "Shards":
        """Reads the beginning of each file, and the index at the end of a parquet file; DataFault if one is refused."""
        return cls([open_shard(file, columns) for file in files], columns.errors)

    @cached_property
    def starts(self) -> np.ndarray:
        """(n + 1,): the first place of each shard, then the number of places."""
        return np.cumsum([0, *(shard.length for shard in self.shards)], dtype=np.int64)

    @property
    def length(self) -> int:
        """Number of places: bytes of text, with the syntax of jsonl."""
        return int(self.starts[-1])

    @cached_property
    def hash(self) -> str:
        """Hash of the names and sizes of the files, of evenly spaced parts of each, and of the column that is read."""
        facts = ((shard.file.path.name, shard.file.format, shard.size, shard.column) for shard in self.shards)
        return hash_of([[*one, _sampled_hash(shard)] for one, shard in zip(facts, self.shards, strict=True)])

    def notes(self, column: str) -> Iterator[str]:
        """Files that are empty, and the first one whose column is not `column`."""
        if empty := [shard.file.name for shard in self.shards if not shard.length]:
            more = ", ..." if len(empty) > _SHOWN else ""
            yield f"{len(empty):,} of {len(self.shards):,} files are empty: {', '.join(empty[:_SHOWN])}{more}"
        if other := next((shard for shard in self.shards if shard.column not in ("", column)), None):
            yield f"{other.file.name}: columns read: text = {short(other.column)!r}; data.fields selects others"

    def read(self, begin: int, end: int) -> Iterator[Document]:
        """The documents that begin at a place in [begin, end). DataFault if a file has changed since it was opened."""
        for number in range(int(np.searchsorted(self.starts, begin, side="right")) - 1, len(self.shards)):
            first = int(self.starts[number])
            if first >= end:
                return
            shard = self.shards[number]
            low, high = max(0, begin - first), min(shard.length, end - first)
            if low < high:
                _check(shard)
                yield from read_range(shard, low, high, self.errors)

    def names(self, begin: int, end: int) -> str:
        """The part of the files between two places, in words: FILE at BYTE."""
        number = int(np.searchsorted(self.starts, begin, side="right")) - 1
        shard, first = self.shards[number], int(self.starts[number])
        return f"{shard.file.name} at {(begin - first) / max(1, shard.length):.2%}, {end - begin:,} bytes"


def _check(shard: Shard) -> None:
    path = shard.file.path
    hint = "restore the file and run the same command again, or start over with --fresh"
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataFault.located(str(path), f"the file was there at the start of training: {error.strerror}", hint) from None
    if size != shard.size:
        raise DataFault.located(str(path), f"the file has {size:,} bytes, and {shard.size:,} at the start of training", hint)


def _sampled_hash(shard: Shard) -> str:
    sha = hashlib.sha256()
    with open_plain(shard.file.path) as file:
        for part in range(HASHED_PARTS):
            file.seek(max(0, shard.size - HASHED_BYTES) * part // (HASHED_PARTS - 1))
            sha.update(file.read(HASHED_BYTES))
    return sha.hexdigest()

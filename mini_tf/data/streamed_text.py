"""Training data that are read from their files in every step (`data.streaming: true`), and a bounded sample of them.

The sample is for validation, for training a tokenizer, and for estimates. Parts of the corpus are visited evenly
spaced. Documents of the validation sample are left out of training wherever they occur, by the hashes of their texts.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mini_tf.data.formats.columns import Columns
from mini_tf.data.formats.data_files import DataFile
from mini_tf.data.formats.text_documents import Document, Shard, open_shard, read_range
from mini_tf.data.formats.text_lines import Errors
from mini_tf.data.split import DataSplit, Examples, SplitName, hash_text
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import compact
from mini_tf.system.cache import hash_of
from mini_tf.system.errors import DataFault
from mini_tf.system.safe_files import open_plain
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
        return hash_of([[*facts_, _sampled_hash(shard)] for facts_, shard in zip(facts, self.shards, strict=True)])

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
        fault = f"the file was there at the start of training: {error.strerror}"
        raise DataFault.located(str(path), fault, hint) from None
    if size != shard.size:
        fault = f"the file has {size:,} bytes, and {shard.size:,} at the start of training"
        raise DataFault.located(str(path), fault, hint)


def _sampled_hash(shard: Shard) -> str:
    sha = hashlib.sha256()
    with open_plain(shard.file.path) as file:
        for part in range(HASHED_PARTS):
            file.seek(max(0, shard.size - HASHED_BYTES) * part // (HASHED_PARTS - 1))
            sha.update(file.read(HASHED_BYTES))
    return sha.hexdigest()


PART = 1 << 16
"""Bytes of a part that is visited; with large row groups of parquet more."""
TRAIN_BYTES, VAL_BYTES = 12 << 20, 4 << 20
"""Sizes of the samples, at most."""
VAL_PARTS = 64
"""The validation sample has documents of at least so many parts, if the corpus has them."""


@dataclass(frozen=True, eq=False)
class StreamSample:
    """share: of the corpus for validation, up to VAL_BYTES. val: reads the validation data if they are given."""

    shards: Shards
    share: float
    val: Callable[[], Iterator[Document]] | None = None

    @cached_property
    def _n_parts(self) -> int:
        size = max(PART, max((shard.largest_group for shard in self.shards.shards), default=0) // 8)
        return -(-self.shards.length // max(1, min(size, -(-self.shards.length // VAL_PARTS))))

    def _part(self, visit: int) -> tuple[int, int]:
        """The places of the part with this number in an order in which any beginning is evenly spaced."""
        n = self._n_parts
        stride = next(k for k in range(max(1, round(n * (math.sqrt(5) - 1) / 2)), 0, -1) if math.gcd(k, n) == 1)
        part = visit * stride % n
        return part * self.shards.length // n, (part + 1) * self.shards.length // n

    @cached_property
    def _parts(self) -> list[tuple[int, int]]:
        """The parts of the training sample, in the order of the corpus."""
        n = max(1, min(self._n_parts, self._n_parts * TRAIN_BYTES // max(1, self.shards.length)))
        return sorted(map(self._part, range(n)))

    @property
    def n_bytes(self) -> int:
        """Places of the training sample."""
        return sum(end - begin for begin, end in self._parts)

    @cached_property
    def _validation(self) -> list[Document]:
        """Documents of about `share` of the corpus, those with the smallest hashes of each part."""
        most = max(1, min(VAL_BYTES, int(self.shards.length * self.share)))
        documents, size = list[Document](), 0
        for visit in range(self._n_parts):
            if size >= most:
                break
            of_part = 0
            part = self._part(self._n_parts - 1 - visit)  # not those of the training sample, which stands for the rest
            for document in sorted(self.shards.read(*part), key=lambda document: hash_text(document.text)):
                if of_part >= most / VAL_PARTS or size >= most:
                    break
                documents.append(document)
                of_part, size = of_part + len(document.text), size + len(document.text)
        return [Document(document.text, document.where) for document in documents]

    def _read_validation(self) -> Iterator[Document]:
        return self.val() if self.val is not None else iter(self._validation)

    @cached_property
    def held_out(self) -> np.ndarray:
        """(n,) uint64: the sorted hashes of the validation documents."""
        hashes = (hash_text(document.text) for document in self._read_validation())
        return np.unique(np.fromiter(hashes, np.uint64))

    def read(self) -> Iterator[tuple[SplitName, Document]]:
        held_out = HeldOut(self.held_out)
        for begin, end in self._parts:
            for document in held_out.remove(self.shards.read(begin, end)):
                yield "train", Document(document.text, document.where)  # what a part of one continues may be missing
        yield from (("val", document) for document in self._read_validation())

    def whole(self, train: Examples) -> DataSplit:
        """All documents of the corpus, those of the validation sample apart. train: reads it in any other way."""
        held_out = HeldOut(self.held_out)

        def read() -> Iterator[tuple[SplitName, Document]]:
            yield from (("train", document) for document in held_out.remove(train.read()))
            yield from (("val", document) for document in self._read_validation())

        return DataSplit.in_one_part(read, self.shards.length)

    def split(self) -> DataSplit:
        """Both samples, as the splits that are encoded. DataFault if the corpus is empty."""
        if not self.shards.length:
            raise DataFault("data.train: no text")
        return DataSplit.in_one_part(self.read, sum(len(document.text) for _, document in self.read()))


class HeldOut:
    """The documents that are left out of training. hashes (n,): sorted."""

    def __init__(self, hashes: np.ndarray) -> None:
        self._hashes = frozenset(hashes.tolist())

    def remove(self, documents: Iterator[Document]) -> Iterator[Document]:
        return (document for document in documents if hash_text(document.text) not in self._hashes)


class TokenizedPart(NamedTuple):
    """ids (n,): each document after its separator; the next part, or the same from its beginning, may follow.

    starts: index of the first token of each document, and 0.
    """

    ids: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True, eq=False)
class StreamedText:
    """sampled: bytes of the sample that has sampled_tokens tokens, from which the corpus is estimated."""

    shards: Shards
    tokenizer: Tokenizer
    held_out: HeldOut
    sampled: int
    sampled_tokens: int

    @property
    def n_tokens(self) -> int:
        """Tokens of the corpus, estimated."""
        return max(1, self.shards.length * self.sampled_tokens // max(1, self.sampled))

    def read(self, begin: int, end: int) -> TokenizedPart:
        """The training documents that begin at a place in [begin, end). DataFault as `Shards.read`."""
        vocabulary = self.tokenizer.vocabulary
        documents = list(self.held_out.remove(self.shards.read(begin, end)))
        parts, starts, n = [compact(np.zeros(0, np.int64), vocabulary)], [0], 0
        separator = np.array([vocabulary.separator])
        encoded = self.tokenizer.encode_batch([document.text for document in documents])
        for document, ids in zip(documents, encoded, strict=True):
            if document.opens:
                starts.append(n)
                ids = np.concatenate([separator, ids])
            parts.append(compact(ids, vocabulary))
            n += len(ids)
        return TokenizedPart(np.concatenate(parts), np.unique(starts))

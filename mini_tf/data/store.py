"""Tokenized documents in memory-mapped files, written once in bounded memory.

Documents are separated by one separator, and the store begins and ends with one: sep d1 sep d2 sep. A raw stream
(`data.split: tail 10%`) has no separators. A document may have labels per id, labels per document, and a source, which
is a document of a second store.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from mini_tf.data.streamed_text import StreamedText
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import Vocabulary, compact, id_dtype
from mini_tf.system.cache import CHUNK
from mini_tf.system.errors import DataFault


class Tokenizers(NamedTuple):
    """The tokenizer of sources, and that of targets or labelled texts; the same object if they share a vocabulary."""

    source: Tokenizer
    target: Tokenizer


class Encoded(NamedTuple):
    """A document as ids (n,) int32, without its separators.

    labels (n + 1,) float32: one per id and one for the closing separator, NaN = none. row_labels (k,) float32: labels
    of the whole document. source (m,): ids of its source.
    """

    ids: np.ndarray
    labels: np.ndarray | None = None
    row_labels: np.ndarray | None = None
    source: np.ndarray | None = None


class SourceSize(NamedTuple):
    """The size of a source of a store, whose documents follow each other. words: separated by white space."""

    name: str
    n_documents: int
    raw_bytes: int
    words: int


@dataclass(frozen=True, eq=False)
class Store:
    """ids (N,); starts (n_documents,): index of each document's opening separator (0 for a raw stream).

    raw_bytes: UTF-8 bytes of the text without separators, the divisor of bits per byte. labels (N,) and row_labels
    (n_documents, k) as in `Encoded`. source: a store of the sources, one per document. raw: a file of the original
    examples, one line of JSON each. path: None if the store is in memory. streamed: the corpus that training
    rows are read from; the store itself is then a sample of it. sources: of a mixture several.
    """

    path: Path | None
    ids: np.ndarray
    starts: np.ndarray
    raw_bytes: int
    separated: bool
    vocabulary: Vocabulary
    labels: np.ndarray | None = None
    row_labels: np.ndarray | None = None
    source: "Store | None" = None
    raw: Path | None = None
    streamed: StreamedText | None = None
    sources: tuple[SourceSize, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_documents(self) -> int:
        return len(self.starts)

    @property
    def n_tokens(self) -> int:
        """Tokens of the split: len(store), or of a streamed corpus an estimate."""
        return len(self) if self.streamed is None else self.streamed.n_tokens

    @property
    def words(self) -> int:
        """Words of the raw text."""
        return sum(source.words for source in self.sources)

    def by_source(self) -> "list[Store]":
        """The store of each source of a mixture of running text, in the order of `sources`: a part of the same file."""
        ends = np.cumsum([source.n_documents for source in self.sources]).tolist()
        borders, parts = np.append(self.starts, len(self) - self.separated), list[Store]()
        for source, last in zip(self.sources, ends, strict=True):
            first = last - source.n_documents
            begin, end = int(borders[first]), int(borders[last]) + self.separated
            part = replace(self, path=None, ids=self.ids[begin:end], starts=self.starts[first:last] - begin)
            parts.append(replace(part, raw_bytes=source.raw_bytes, sources=(source,)))
        return parts

    @cached_property
    def lengths(self) -> np.ndarray:
        """(n_documents,): tokens of each document, without separators."""
        return np.diff(self.starts, append=len(self) - self.separated) - self.separated

    def document(self, n: int) -> np.ndarray:
        """The ids of document n, without separators."""
        first, last = self.span(n)
        return self.ids[first + self.separated : last]

    def span(self, n: int) -> tuple[int, int]:
        """The range [first, last) of document n in `ids`, with its opening separator, without its closing one."""
        first = int(self.starts[n])
        return first, first + self.separated + int(self.lengths[n])

    def token_counts(self) -> np.ndarray:
        """(V,): int64, how often each id of the vocabulary occurs; read in parts, since the file may be large."""
        counts = np.zeros(self.vocabulary.size, np.int64)
        for first in range(0, len(self.ids), 2**24):
            counts += np.bincount(self.ids[first : first + 2**24], minlength=self.vocabulary.size)
        return counts

    def check(self) -> None:
        """Raises DataFault if a file has another size: reading beyond its end would kill the process (SIGBUS)."""
        if self.source is not None:
            self.source.check()
        arrays = {"ids": self.ids, "starts": self.starts, "labels": self.labels, "row_labels": self.row_labels}
        for name, array in arrays.items():
            if self.path is None or array is None:
                continue
            path = self.path.with_suffix(f".{name}")
            if (path.stat().st_size if path.exists() else 0) != array.nbytes:
                hint = "run the same command again"
                raise DataFault(f"{path} changed during training", hint=hint, where=(str(path),))


@dataclass
class Writer:
    """Writes a store into the files `name`.ids, `name`.starts, ...; `files` closes them."""

    files: ExitStack
    folder: Path
    name: str
    vocabulary: Vocabulary
    separated: bool
    n_tokens: int = 0
    n_documents: int = 0
    raw_bytes: int = 0
    columns: int = 0
    sources: dict[str, list[int]] = field(default_factory=dict)
    _open: dict[str, BinaryIO] = field(default_factory=dict)

    def add(self, text: str, ids: np.ndarray, is_first_part: bool = True, source: int = 0) -> None:
        """Append a document, or a further part of the last one. Raises DataFault if an id is outside the vocabulary."""
        ids = compact(ids, self.vocabulary)
        if is_first_part:
            self._write("starts", np.array([self.n_tokens], np.int64))
            self.n_documents += 1
            self._separate()
        self._write("ids", ids)
        self.n_tokens += len(ids)
        size = [is_first_part, len(text.encode()), len(text.split())]
        self.raw_bytes += size[1]
        self.sources[str(source)] = _total(self.sources.get(str(source)), size)

    def label(self, encoded: Encoded, raw: str | None) -> None:
        """Write the labels of the last document, and the original example as JSON, if given."""
        if encoded.labels is not None:
            before = [] if "labels" in self._open else [np.nan]  # the label of the first separator
            self._write("labels", np.append(before, encoded.labels).astype(np.float32))
        if encoded.row_labels is not None:
            self.columns = len(encoded.row_labels)
            self._write("row_labels", encoded.row_labels.astype(np.float32))
        if raw is not None:
            self._write("jsonl", np.frombuffer(f"{raw}\n".encode(), np.uint8))

    def close(self) -> dict[str, Any]:
        """Write the last separator; returns the facts that `open_store` needs."""
        self._separate()
        sizes = {"tokens": self.n_tokens, "documents": self.n_documents, "raw_bytes": self.raw_bytes}
        facts = {"labels": "labels" in self._open, "columns": self.columns, "separated": self.separated}
        return {**sizes, "sources": self.sources, **facts}

    def _separate(self) -> None:
        if self.separated:
            self._write("ids", np.array([self.vocabulary.separator], id_dtype(self.vocabulary)))
            self.n_tokens += 1

    def _write(self, suffix: str, array: np.ndarray) -> None:
        if suffix not in self._open:
            self._open[suffix] = self.files.enter_context((self.folder / f"{self.name}.{suffix}").open("wb"))
        self._open[suffix].write(array.tobytes())


def join_stores(folder: Path, shares: Sequence[tuple[Path, Mapping[str, Any]]]) -> dict[str, Any]:
    """Join stores of consecutive shares of the documents into one of the same name in `folder`; returns facts by name.

    shares: the folder of each, which is removed, and the facts of its stores.
    """
    joined: dict[str, Any] = {}
    for path, stores in shares:
        for name, facts in stores.items():
            before = joined.get(name)
            for file in sorted(path.glob(f"{name}.*")):
                if file.stem != name:  # such as train.source.ids
                    continue
                if before is None:
                    os.replace(file, folder / file.name)
                else:
                    _append(folder / file.name, file, before, facts)
            joined[name] = facts if before is None else _sum(before, facts)
        shutil.rmtree(path)
    return joined


def _append(file: Path, share: Path, before: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Append a file of a store to that of the stores before it, and remove it. The last separator is its first one."""
    with file.open("ab") as joined, share.open("rb") as source:
        if file.suffix == ".starts":
            joined.write((np.frombuffer(source.read(), np.int64) + before["tokens"] - before["separated"]).tobytes())
        elif file.suffix in (".ids", ".labels"):
            source.seek(before["separated"] * (share.stat().st_size // facts["tokens"]))
        shutil.copyfileobj(source, joined, CHUNK)
    share.unlink()


def _sum(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of two joined stores."""
    sums = {name: first[name] + other[name] for name in ("tokens", "documents", "raw_bytes")}
    sources = dict(first["sources"])
    for source, size in other["sources"].items():
        sources[source] = _total(sources.get(source), size)
    return {**first, **sums, "tokens": sums["tokens"] - first["separated"], "sources": sources}


def _total(size: Sequence[int] | None, more: Sequence[int]) -> list[int]:
    return [int(n) for n in more] if size is None else [a + int(b) for a, b in zip(size, more, strict=True)]


def open_store(
    folder: Path,
    name: str,
    facts: dict[str, Any],
    vocabulary: Vocabulary,
    source: Store | None = None,
    source_names: Sequence[str] = (),
) -> Store:
    """Open what a `Writer` of this name has written. facts: what its `close` returned. source_names: of a mixture."""
    n, n_documents, columns, raw = facts["tokens"], facts["documents"], facts["columns"], folder / f"{name}.jsonl"
    sizes = sorted((int(number), size) for number, size in facts["sources"].items())

    def mapped(suffix: str, dtype: Any, *shape: int) -> np.ndarray:
        return np.memmap(folder / f"{name}.{suffix}", dtype, "r", shape=shape)

    return Store(
        folder / f"{name}.ids",
        mapped("ids", id_dtype(vocabulary), n),
        mapped("starts", np.int64, n_documents),
        facts["raw_bytes"],
        facts["separated"],
        vocabulary,
        mapped("labels", np.float32, n) if facts["labels"] else None,
        mapped("row_labels", np.float32, n_documents, columns) if columns else None,
        source,
        raw if raw.exists() else None,
        sources=tuple(SourceSize(source_names[n] if source_names else "", *size) for n, size in sizes),
    )


def in_memory(encoded: Sequence[Encoded], tokenizers: Tokenizers, separated: bool = True) -> Store:
    """A store of a few documents, without files."""
    separator = np.array([tokenizers.target.vocabulary.separator] if separated else [], np.int32)
    ids = np.concatenate([piece for document in encoded for piece in (separator, document.ids)] + [separator])
    starts = np.cumsum([0, *(len(separator) + len(document.ids) for document in encoded)])[:-1]
    labels = [document.labels for document in encoded if document.labels is not None]
    row_labels = [document.row_labels for document in encoded if document.row_labels is not None]
    sources = [Encoded(document.source) for document in encoded if document.source is not None]
    return Store(
        None,
        ids,
        starts,
        0,
        separated,
        tokenizers.target.vocabulary,
        np.concatenate([[np.nan], *labels]).astype(np.float32) if labels else None,
        np.stack(row_labels) if row_labels else None,
        in_memory(sources, Tokenizers(tokenizers.source, tokenizers.source)) if sources else None,
    )

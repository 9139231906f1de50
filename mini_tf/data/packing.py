"""From a store to rows: the interface of everything that reads rows of data."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.store import Store
from mini_tf.system.seeds import seed_of


@dataclass(frozen=True)
class Shape:
    """Rows of `context` tokens and `lookahead` more, which are targets only.

    pack: as `data.pack`. seed: for the offsets of epochs. word_starts_of: finds where words begin, if the objective
    needs it.
    """

    context: int
    lookahead: int = 0
    pack: Literal["docs", "concat", "none"] = "concat"
    seed: int = 0
    word_starts_of: Callable[[np.ndarray], np.ndarray] | None = None


@dataclass(frozen=True, eq=False)
class Packing:
    """A store as rows; see subclasses."""

    store: Store
    shape: Shape

    n_longer = 0
    """Examples longer than the context."""

    @property
    def pack(self) -> str:
        return self.shape.pack

    @property
    def n_rows(self) -> int:
        """Rows per epoch, constant."""
        return len(self.lengths)

    @property
    def lengths(self) -> np.ndarray:
        """(n_rows,): input tokens of each row; with a source, the longer of both."""
        raise NotImplementedError

    @property
    def row_tokens(self) -> float:
        """Mean number of input tokens per row; with a source, of targets."""
        raise NotImplementedError

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        """These rows (B,) of an epoch, with the keys (B,) to draw from."""
        raise NotImplementedError

    def documents(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        """The documents (from 0, each once) in these rows (B,) of an epoch; none if the data is one document."""
        raise NotImplementedError

    @property
    def held_out_tokens(self) -> np.ndarray:
        """(n,): tokens of each evaluation row that count for `eval.tokens`."""
        raise NotImplementedError

    def held_out(self, rows: np.ndarray, keys: np.ndarray) -> Rows:
        """These rows (B,) of evaluation."""
        return self.take(rows, 0, keys)

    def eval_numbers(self, tokens: int | None = None) -> np.ndarray:
        """(n,): numbers of the rows of an evaluation on `tokens`."""
        of_rows = self.held_out_tokens
        return np.arange(len(of_rows)) if tokens is None else spread(of_rows, tokens)

    def eval_rows(self, batch_size: int, tokens: int | None = None) -> Iterator[Rows]:
        """Every target once, in order, in batches; with `tokens` a sample of rows with so many tokens, spread evenly.

        A row's key depends on its number alone, so masks are the same for every run, sample and batch size.
        """
        chosen = self.eval_numbers(tokens)
        for begin in range(0, len(chosen), batch_size):
            numbers = chosen[begin : begin + batch_size]
            yield self.held_out(numbers, np.array([seed_of("example", int(i)) for i in numbers], np.uint64))


def spread(of_rows: np.ndarray, tokens: int) -> np.ndarray:
    """Which rows, with so many tokens each (n,), to take for `tokens` in total, evenly spread; all if there are fewer.

    Validation data may be sorted by class or origin, so the first rows would not be representative.
    """
    n = len(of_rows)
    m = min(n, math.ceil(tokens / max(of_rows.mean(), 1e-9)))
    while True:
        chosen: np.ndarray = (2 * np.arange(m) + 1) * n // (2 * m)
        if m == n or of_rows[chosen].sum() >= tokens:
            return chosen
        m = min(n, m + max(1, m // 64))


@dataclass(frozen=True, eq=False)
class Spans:
    """For each row (n_rows,): its document, its first and its end position in the store, without separators.

    closed: the closing separator follows. From position `gap` on so many ids are `skipped`.
    """

    documents: np.ndarray
    first: np.ndarray
    last: np.ndarray
    closed: np.ndarray
    gap: np.ndarray
    skipped: np.ndarray

    @classmethod
    def of(cls, first: np.ndarray, last: np.ndarray, documents: np.ndarray | None = None, closed: np.ndarray | None = None) -> "Spans":
        """Rows that skip nothing; by default one per document, in order, and closed."""
        documents = np.arange(len(first)) if documents is None else documents
        closed = np.ones(len(first), bool) if closed is None else closed
        return cls(documents, first, last, closed, last, np.zeros_like(first))

    def chosen(self, rows: np.ndarray) -> "Spans":
        """Some of them, by number or mask."""
        return Spans(*(array[rows] for array in vars(self).values()))

    @property
    def lengths(self) -> np.ndarray:
        """(n_rows,): ids of each row, without its opening separator."""
        lengths: np.ndarray = self.last - self.first - self.skipped + self.closed
        return lengths


@dataclass(frozen=True, eq=False)
class OneEach(Packing):
    """One example per row, between separators, or a part of one; `sources`: the rows of sources, without opening
    separator.
    """

    spans: Spans
    sources: Spans | None = None
    n_longer: int = 0

    pack = "none"

    @cached_property
    def held_out_tokens(self) -> np.ndarray:
        tokens: np.ndarray = self.spans.lengths + 1 - self.shape.lookahead
        return tokens

    @cached_property
    def lengths(self) -> np.ndarray:
        return self.held_out_tokens if self.sources is None else np.maximum(self.held_out_tokens, self.sources.lengths)

    @cached_property
    def row_tokens(self) -> float:
        return float(self.held_out_tokens.mean())

    def documents(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        return np.unique(self.spans.documents[rows])

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        """The same in every epoch."""
        self.store.check()
        store, spans = self.store, self.spans.chosen(rows)
        ids, segments, index = _read(store, spans)
        labels, source = None, None
        if store.labels is not None:
            labels = np.asarray(store.labels[index])
            labels[:, 0] = np.nan
            # A row may end where its document continues.
            ends = spans.last == (store.starts + 1 + store.lengths)[spans.documents]
            labels[np.arange(len(rows))[~ends], spans.lengths[~ends]] = np.nan
            if segments is not None:
                labels[segments == 0] = np.nan
        if self.sources is not None and store.source is not None:
            source_ids, source_segments, _ = _read(store.source, self.sources.chosen(rows))
            source = Rows(source_ids[:, 1:], keys, None if source_segments is None else source_segments[:, 1:])
        row_labels = None if store.row_labels is None else np.asarray(store.row_labels[spans.documents])
        return Rows(ids, keys, segments, source=source, labels=labels, row_labels=row_labels, examples=spans.documents.astype(np.int64))


def _read(store: Store, spans: Spans) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """ids (B, n) with separators, padded on the right; which of them are real (None = all); and their positions in the
    store.
    """
    lengths, at = spans.lengths[:, None], np.arange(int(spans.lengths.max()) + 1)
    real, closing = at <= lengths, (at == lengths) & spans.closed[:, None]
    index = spans.first[:, None] - 1 + at
    index = np.minimum(index + np.where(index >= spans.gap[:, None], spans.skipped[:, None], 0), len(store) - 1)
    ids = store.ids[index].astype(np.int64)
    separator = store.vocabulary.separator
    assert separator is not None
    ids[:, 0], ids[closing], ids[~real] = separator, separator, 0
    return ids, None if real.all() else real.astype(np.int64), index

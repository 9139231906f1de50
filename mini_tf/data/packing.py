"""From a store to rows: what everything that reads rows of data asks, whatever a row is."""

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
    """Rows of `context` tokens and `lookahead` more, which are predicted but not read.

    pack: as `data.pack`. seed: of where epochs begin. word_starts_of: finds out where words begin, if the objective asks for it.
    """

    context: int
    lookahead: int = 0
    pack: Literal["docs", "concat", "none"] = "concat"
    seed: int = 0
    word_starts_of: Callable[[np.ndarray], np.ndarray] | None = None


@dataclass(frozen=True, eq=False)
class Packing:
    """A store in rows; subclasses say how."""

    store: Store
    shape: Shape

    n_longer = 0
    """Examples that are longer than the context."""

    @property
    def pack(self) -> str:
        return self.shape.pack

    @property
    def n_rows(self) -> int:
        """Rows an epoch, the same for all epochs."""
        return len(self.lengths)

    @property
    def lengths(self) -> np.ndarray:
        """(n_rows,): tokens that each row reads; of rows with a source, on the longer side."""
        raise NotImplementedError

    @property
    def row_tokens(self) -> float:
        """Tokens that a row reads, on average; of rows with a source, that are predicted."""
        raise NotImplementedError

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        """These rows (B,) of an epoch, each with the key (B,) it will draw from."""
        raise NotImplementedError

    def documents(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        """Which documents (from 0, each once) these rows (B,) of an epoch read; none where the text has not several."""
        raise NotImplementedError

    @property
    def held_out_tokens(self) -> np.ndarray:
        """(n,): of each row of evaluation, the tokens that count for `eval.tokens`."""
        raise NotImplementedError

    def held_out(self, rows: np.ndarray, keys: np.ndarray) -> Rows:
        """These rows (B,) of evaluation."""
        return self.take(rows, 0, keys)

    def eval_numbers(self, tokens: int | None = None) -> np.ndarray:
        """(n,): the numbers of the rows that an evaluation on `tokens` reads."""
        of_rows = self.held_out_tokens
        return np.arange(len(of_rows)) if tokens is None else spread(of_rows, tokens)

    def eval_rows(self, batch_size: int, tokens: int | None = None) -> Iterator[Rows]:
        """Every target once, in order, in batches; with `tokens` only of rows that have so many together, spread evenly over all.

        A row's key depends on its number alone, so what is masked is the same for every run, sample and batch size.
        """
        chosen = self.eval_numbers(tokens)
        for begin in range(0, len(chosen), batch_size):
            numbers = chosen[begin : begin + batch_size]
            yield self.held_out(numbers, np.array([seed_of("example", int(i)) for i in numbers], np.uint64))


def spread(of_rows: np.ndarray, tokens: int) -> np.ndarray:
    """Which of the rows with so many tokens each (n,) to take, evenly spread, to have `tokens` together; all where there are fewer.

    Held-out data that are given may be sorted, by class or by origin: the first rows would not stand for the others.
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
    """Of each row (n_rows,): its document, the first of its ids in the store and the one after its last, separators apart.

    closed: whether the closing separator stands behind them. From the id at `gap` on so many are `skipped`.
    """

    documents: np.ndarray
    first: np.ndarray
    last: np.ndarray
    closed: np.ndarray
    gap: np.ndarray
    skipped: np.ndarray

    @classmethod
    def of(cls, first: np.ndarray, last: np.ndarray, documents: np.ndarray | None = None, closed: np.ndarray | None = None) -> "Spans":
        """Rows that skip nothing; by default a row is a document, in order, and closed."""
        documents = np.arange(len(first)) if documents is None else documents
        closed = np.ones(len(first), bool) if closed is None else closed
        return cls(documents, first, last, closed, last, np.zeros_like(first))

    def chosen(self, rows: np.ndarray) -> "Spans":
        """Some of them, by number or where True."""
        return Spans(*(array[rows] for array in vars(self).values()))

    @property
    def lengths(self) -> np.ndarray:
        """(n_rows,): ids of each row, its opening separator left out."""
        lengths: np.ndarray = self.last - self.first - self.skipped + self.closed
        return lengths


@dataclass(frozen=True, eq=False)
class OneEach(Packing):
    """An example a row, between its separators, or a part of one; `sources`: rows that are read besides, which no separator opens."""

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
            # A cut may fall where something else goes on.
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
    """ids (B, n) with their separators, padded on the right; which of them are real (None = all); and where they stand in the store."""
    lengths, at = spans.lengths[:, None], np.arange(int(spans.lengths.max()) + 1)
    real, closing = at <= lengths, (at == lengths) & spans.closed[:, None]
    index = spans.first[:, None] - 1 + at
    index = np.minimum(index + np.where(index >= spans.gap[:, None], spans.skipped[:, None], 0), len(store) - 1)
    ids = store.ids[index].astype(np.int64)
    separator = store.vocabulary.separator
    assert separator is not None
    ids[:, 0], ids[closing], ids[~real] = separator, separator, 0
    return ids, None if real.all() else real.astype(np.int64), index

"""Packing: how the documents of a store become rows for training and evaluation."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.store import Store
from mini_tf.system.seeds import seed_of

SHORTEST_STREAM = 16
"""Rows of a stream of an evaluation, at least: its first row has no memory."""


@dataclass(frozen=True)
class Shape:
    """Rows of `context` input tokens and `lookahead` further tokens, which are targets only.

    pack: `data.pack`. seed: decides the offset of each epoch. word_starts_of, sentence_starts_of: find word and
    sentence starts in ids, if the objective needs them. streams: of an evaluation with a recurrent state, at most; 0:
    each row is evaluated by itself.
    """

    context: int
    lookahead: int = 0
    pack: Literal["docs", "concat", "none"] = "concat"
    seed: int = 0
    word_starts_of: Callable[[np.ndarray], np.ndarray] | None = None
    sentence_starts_of: Callable[[np.ndarray], np.ndarray] | None = None
    streams: int = 0


class BlockLayout(NamedTuple):
    """Rows in blocks that are costly to read: row n is in block n // rows. n_open: blocks that stay in memory."""

    n_blocks: int
    rows: int
    n_open: int


@dataclass(frozen=True, eq=False)
class Packing:
    """Base class: the rows of a store."""

    store: Store
    shape: Shape

    n_too_long = 0
    """Examples longer than the context."""

    @property
    def pack(self) -> str:
        return self.shape.pack

    @property
    def n_rows(self) -> int:
        """Rows per epoch, the same for all epochs."""
        return len(self.lengths)

    @property
    def layout(self) -> BlockLayout | None:
        """The blocks of the rows; None if rows can be read in any order."""
        return None

    @property
    def lengths(self) -> np.ndarray:
        """(n_rows,): input tokens of each row; the longer of source and target."""
        raise NotImplementedError

    @property
    def row_tokens(self) -> float:
        """Mean input tokens per row; of rows with a source, of the target."""
        raise NotImplementedError

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        """The rows with these indices (B,) in an epoch; keys (B,): a random seed for each."""
        raise NotImplementedError

    def documents(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        """The distinct documents (from 0) in these rows (B,) of an epoch; empty if the store has a single one."""
        raise NotImplementedError

    def names(self, rows: np.ndarray) -> list[str]:
        """Where these rows (B,) are in the files, if documents have no numbers."""
        return []

    @property
    def eval_row_tokens(self) -> np.ndarray:
        """(n,): tokens of each evaluation row, as counted for `eval.tokens`."""
        raise NotImplementedError

    def take_eval(self, rows: np.ndarray, keys: np.ndarray) -> Rows:
        """The evaluation rows with these indices (B,)."""
        return self.take(rows, 0, keys)

    def bytes_of(self, targets: float) -> float:
        """Average bytes of the raw text of so many targets, for bits per byte."""
        return self.store.raw_bytes * (targets / max(1, len(self.store) - self.shape.lookahead))

    def eval_row_indices(self, tokens: int | None = None) -> np.ndarray:
        """(n,): indices of the rows of an evaluation on at least `tokens` tokens; None = all."""
        of_rows = self.eval_row_tokens
        return np.arange(len(of_rows)) if tokens is None else evenly_spaced(of_rows, tokens)

    def eval_rows(self, batch_size: int, tokens: int | None = None) -> Iterator[Rows]:
        """Batches with every target once, in order; with `tokens` only evenly spaced rows with at least so many tokens.

        A row's key depends on its index alone, so the same tokens are masked in every run, sample and batch size.
        """
        indices = self.eval_row_indices(tokens)
        for begin in range(0, len(indices), batch_size):
            batch = indices[begin : begin + batch_size]
            yield self.take_eval(batch, example_keys(batch))

    def eval_batches(self, batch_size: int, tokens: int | None = None) -> Iterator["EvalBatch"]:
        """`eval_rows`, or with `Shape.streams` the rows of as many streams, if each gets SHORTEST_STREAM rows.

        A stream is a run of successive rows, of which `batch_size` advance together; with `tokens` only its beginning,
        of about so many tokens in all streams. For running text without document boundaries (`data.pack: concat`).
        """
        if not self.shape.streams:
            yield from (EvalBatch(rows) for rows in self.eval_rows(batch_size, tokens))
            return
        of_rows = self.eval_row_tokens
        n_streams = max(1, min(self.shape.streams, len(of_rows) // SHORTEST_STREAM))
        share = 1.0 if tokens is None else min(1.0, tokens / of_rows.sum())
        cuts = np.arange(n_streams + 1) * len(of_rows) // n_streams
        runs = [np.arange(first, first + math.ceil(share * (last - first))) for first, last in pairwise(cuts)]
        runs.sort(key=len)
        for begin in range(0, len(runs), batch_size):
            group = runs[begin : begin + batch_size]
            alive = np.arange(len(group))
            for step in range(max(map(len, group))):
                before, alive = alive, np.array([i for i in alive if step < len(group[i])])
                index = np.array([group[i][step] for i in alive])
                short = of_rows[index] < of_rows[index[0]]  # the last row of all, at the end of a longest run
                for part, ends in ((short, True), (~short, False)):
                    if part.any():
                        rows = self.take_eval(index[part], example_keys(index[part]))
                        length = int(of_rows[index[part][0]]) + self.shape.lookahead  # of all, so without padding
                        continues = None if step == 0 else np.searchsorted(before, alive[part])
                        yield EvalBatch(Rows(rows.ids[:, :length], rows.keys), continues, ends)


def example_keys(indices: np.ndarray) -> np.ndarray:
    """(B,): the keys of evaluation rows with these indices."""
    return np.array([seed_of("example", int(i)) for i in indices], np.uint64)


class EvalBatch(NamedTuple):
    """Rows of an evaluation. continues (B,): the rows of the batch before that they continue, with a recurrent state;
    None at the beginning of a stream. ends: no later row continues these. source: of a mixture.
    """

    rows: Rows
    continues: np.ndarray | None = None
    ends: bool = True
    source: str = ""


def evenly_spaced(of_rows: np.ndarray, tokens: int) -> np.ndarray:
    """Indices of evenly spaced rows with at least `tokens` tokens in total, at most all. of_rows (n,): tokens of each.

    Evenly spaced, because validation data may be sorted by class or origin: the first rows would not be representative.
    """
    n = len(of_rows)
    m = min(n, math.ceil(tokens / max(of_rows.mean(), 1e-9)))
    while True:
        indices: np.ndarray = (2 * np.arange(m) + 1) * n // (2 * m)
        if m == n or of_rows[indices].sum() >= tokens:
            return indices
        m = min(n, m + max(1, m // 64))


@dataclass(frozen=True, eq=False)
class Spans:
    """For each row (n_rows,): its document and the range [first, last) of its ids in the store, without separators.

    closed: True if the closing separator follows. `skipped` ids from index `gap` on are left out.
    """

    documents: np.ndarray
    first: np.ndarray
    last: np.ndarray
    closed: np.ndarray
    gap: np.ndarray
    skipped: np.ndarray

    @classmethod
    def of(
        cls, first: np.ndarray, last: np.ndarray, documents: np.ndarray | None = None, closed: np.ndarray | None = None
    ) -> "Spans":
        """Rows without a gap; by default row n is the whole document n, closed."""
        documents = np.arange(len(first)) if documents is None else documents
        closed = np.ones(len(first), bool) if closed is None else closed
        return cls(documents, first, last, closed, last, np.zeros_like(first))

    def select(self, rows: np.ndarray) -> "Spans":
        """A subset, by indices or by a boolean mask."""
        return Spans(*(array[rows] for array in vars(self).values()))

    @property
    def lengths(self) -> np.ndarray:
        """(n_rows,): ids of each row, without its opening separator."""
        lengths: np.ndarray = self.last - self.first - self.skipped + self.closed
        return lengths


@dataclass(frozen=True, eq=False)
class ExampleRows(Packing):
    """One example per row, between separators, or a part of one.

    sources: the source of each row, without an opening separator. An example or a source begins as
    `Vocabulary.template` says, if there is one; it always has its closing separator, as `text_end` is the token before.
    """

    spans: Spans
    sources: Spans | None = None
    n_too_long: int = 0

    pack = "none"

    @cached_property
    def eval_row_tokens(self) -> np.ndarray:
        tokens: np.ndarray = self.spans.lengths + len(self._before) - self.shape.lookahead
        return tokens

    @cached_property
    def lengths(self) -> np.ndarray:
        if self.sources is None or self.store.source is None:
            return self.eval_row_tokens
        of_sources = self.sources.lengths + len(source_start(self.store.source))
        lengths: np.ndarray = np.maximum(self.eval_row_tokens, of_sources)
        return lengths

    @property
    def _before(self) -> tuple[int, ...]:
        """The ids before the text of a row."""
        start = self.store.vocabulary.target_start
        return start if self.sources is not None else id_before(self.store, start[:1])

    @cached_property
    def row_tokens(self) -> float:
        return float(self.eval_row_tokens.mean())

    def documents(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        return np.unique(self.spans.documents[rows])

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        """The same in every epoch."""
        self.store.check()
        store, spans = self.store, self.spans.select(rows)
        ids, segments, index = _read(store, spans)
        labels, source = None, None
        if store.labels is not None:
            labels = np.asarray(store.labels[index])
            labels[:, 0] = np.nan
            # Behind a cut the store has the label of the next id, not of the separator.
            ends = spans.last == (store.starts + 1 + store.lengths)[spans.documents]
            labels[np.arange(len(rows))[~ends], spans.lengths[~ends]] = np.nan
            if segments is not None:
                labels[segments == 0] = np.nan
        if self.sources is not None and store.source is not None:
            source_ids, source_segments, _ = _read(store.source, self.sources.select(rows))
            source = _opened(Rows(source_ids, keys, source_segments), source_start(store.source))
        row_labels = None if store.row_labels is None else np.asarray(store.row_labels[spans.documents])
        examples = spans.documents.astype(np.int64)
        rows_ = Rows(ids, keys, segments, source=source, labels=labels, row_labels=row_labels, examples=examples)
        return _opened(rows_, self._before)


def id_before(store: Store, default: tuple[int, ...]) -> tuple[int, ...]:
    """The id before an example or a source; default: without a template."""
    template = store.vocabulary.template
    return default if template is None else template.before[-1:]


def source_start(store: Store) -> tuple[int, ...]:
    """The id before a source, if there is one."""
    return id_before(store, ())


def _opened(rows: Rows, before: tuple[int, ...]) -> Rows:
    """The rows with these ids in place of their first column."""
    if len(before) != 1:
        ids = _columns(rows.ids, len(before), 0)
        segments, labels = (
            None if part is None else _columns(part, len(before), fill)
            for part, fill in ((rows.segments, 1), (rows.labels, np.nan))
        )
        rows = replace(rows, ids=ids, segments=segments, labels=labels)
    rows.ids[:, : len(before)] = before
    return rows


def _columns(part: np.ndarray, n: int, fill: float) -> np.ndarray:
    """(B, L) with `n` columns in place of the first."""
    return np.concatenate([np.full((len(part), n), fill, part.dtype), part[:, 1:]], axis=1)


def _read(store: Store, spans: Spans) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """ids (B, n) with separators, right-padded; the padding mask (0 = padding, None = none); indices in the store.

    The first column is for the opening separator.
    """
    lengths, at = spans.lengths[:, None], np.arange(int(spans.lengths.max()) + 1)
    real, closing = at <= lengths, (at == lengths) & spans.closed[:, None]
    index = spans.first[:, None] - 1 + at
    index = np.minimum(index + np.where(index >= spans.gap[:, None], spans.skipped[:, None], 0), len(store) - 1)
    ids = store.ids[index].astype(np.int64)
    assert store.vocabulary.separator is not None
    ids[closing], ids[~real] = store.vocabulary.separator, 0
    return ids, None if real.all() else real.astype(np.int64), index

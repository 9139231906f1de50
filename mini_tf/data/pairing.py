"""From stored pairs to rows: one pair a row, the source closed by its separator, the target between two.

What is longer than the context is cut: a source before its closing separator, which stays; a target at its end, for which it is
then not asked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.pair_store import PairStore
from mini_tf.data.token_store import TokenStore
from mini_tf.system.seeds import seed_of


@dataclass(frozen=True, eq=False)
class Pairing:
    """Rows of pairs, of at most `context` tokens on either side; what else reads text asks it what it asks a `Packing`."""

    store: PairStore
    context: int

    lookahead = 1
    pack = "none"

    @property
    def n_rows(self) -> int:
        """Pairs: an epoch reads each once."""
        return self.store.n_documents

    @cached_property
    def lengths(self) -> np.ndarray:
        """(n_rows,): tokens of the longer side of each pair, as it is read."""
        longer: np.ndarray = np.minimum(np.maximum(*self._lengths) + 1, self.context)
        return longer

    @cached_property
    def row_tokens(self) -> float:
        """Tokens of a target that are asked for, on average."""
        return float(self._asked.mean())

    @property
    def n_cut(self) -> int:
        """Pairs of which a side is longer than the context."""
        return int((np.maximum(*self._lengths) >= self.context).sum())

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        """These pairs (B,), the same in every epoch, each with the key (B,) it will draw from."""
        self.store.check()
        source_lengths, lengths = (side[rows] for side in self._lengths)
        ids, segments = self._side(self.store.target, rows, lengths, opened=True)
        source_ids, source_segments = self._side(self.store.source, rows, source_lengths, opened=False)
        return Rows(ids, keys, segments, source=Rows(source_ids, keys, source_segments))

    def documents(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        """Which pairs these rows read."""
        return np.unique(rows)

    def eval_rows(self, batch_size: int, tokens: int | None = None) -> Iterator[Rows]:
        """Every pair once, in order, in batches; with `tokens` only the first that have so many targets."""
        n = self.n_rows if tokens is None else min(self.n_rows, 1 + int(np.searchsorted(np.cumsum(self._asked), tokens)))
        for first in range(0, n, batch_size):
            numbers = np.arange(first, min(first + batch_size, n))
            yield self.take(numbers, 0, np.array([seed_of("example", int(i)) for i in numbers], np.uint64))

    @property
    def _lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of each source, and of each target, without separators."""
        return self.store.source.lengths, self.store.target.lengths

    @property
    def _asked(self) -> np.ndarray:
        """(n_rows,): tokens of each target that are asked for."""
        asked: np.ndarray = np.minimum(self._lengths[1] + 1, self.context)
        return asked

    def _side(self, store: TokenStore, rows: np.ndarray, lengths: np.ndarray, opened: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """ids (B, n) of documents with their closing separator, and with their opening one if `opened`, padded on the right.

        One that is too long and not `opened` ends with its separator all the same.
        """
        first = store.starts[rows] + (0 if opened else 1)
        last = np.minimum(store.starts[rows] + lengths + 2, first + self.context + (1 if opened else 0))
        index = first[:, None] + np.arange(int((last - first).max()))
        real = index < last[:, None]
        ids = store.ids[np.minimum(index, len(store) - 1)].astype(np.int64)
        if not opened:
            ids[np.arange(len(rows)), last - first - 1] = store.vocabulary.separator
        if real.all():
            return ids, None
        ids[~real] = 0
        return ids, real.astype(np.int64)

"""Rows of the dataset `text`: windows on the stream of ids, or one document per row.

The windows of each epoch begin at another random offset, so that a token does not always have the same context; the
offset of the first epoch is 0. Evaluation contains every target exactly once.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.packing import Packing
from mini_tf.system.seeds import seed_of

MIN_WINDOWS_TO_SHIFT = 8
"""An offset costs one window; with fewer windows than this, that would waste too much of the data."""


@dataclass(frozen=True, eq=False)
class Windows(Packing):
    """Rows by `data.pack`.

    concat: windows on the stream. docs: the same windows, with the document of each token in `segments`, from 1; a
    document begins at its opening separator, and the target of its last token is the separator that follows. none: one
    document per row, from its opening separator on, split into several rows if too long, padded (segment 0) if short.
    """

    @property
    def _usable(self) -> int:
        """Tokens followed by all their targets."""
        return len(self.store) - self.shape.lookahead

    @cached_property
    def n_rows(self) -> int:
        if self.pack == "none":
            return self._n_pieces
        full = self._usable // self.shape.context
        return full - 1 if full >= MIN_WINDOWS_TO_SHIFT else max(1, full)

    @property
    def lengths(self) -> np.ndarray:
        return self.eval_row_tokens if self.pack == "none" else np.full(self.n_rows, self.shape.context)

    @property
    def row_tokens(self) -> float:
        return self.shape.context if self.pack != "none" else self._usable / self.n_rows

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        return self._rows(*self._spans(rows, epoch), keys)

    def documents(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        if not self.store.separated or self.store.n_documents < 2:
            return np.empty(0, np.int64)
        first, last = self._spans(rows, epoch)
        index = first[:, None] + np.arange(self.shape.context)
        inputs = index[index < last[:, None]]
        return np.unique(np.searchsorted(self.store.starts, inputs, side="right") - 1)

    @property
    def eval_row_tokens(self) -> np.ndarray:
        n = self._n_pieces if self.pack == "none" else -(-self._usable // self.shape.context)
        first, last = self._eval_spans(np.arange(n))
        tokens: np.ndarray = last - first
        return tokens

    def take_eval(self, rows: np.ndarray, keys: np.ndarray) -> Rows:
        return self._rows(*self._eval_spans(rows), keys)

    def _spans(self, rows: np.ndarray, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The range [first, last) of each row (B,) of an epoch, without the lookahead."""
        return self._eval_spans(rows, self._shift(epoch))

    def _eval_spans(self, rows: np.ndarray, shift: int = 0) -> tuple[np.ndarray, np.ndarray]:
        if self.pack == "none":
            return self._pieces(rows)
        first = rows * self.shape.context + shift
        return first, np.minimum(first + self.shape.context, self._usable)

    def _shift(self, epoch: int) -> int:
        slack = self._usable - self.n_rows * self.shape.context
        return (
            seed_of("epoch", self.shape.seed, epoch) % min(self.shape.context, slack + 1) if epoch and slack > 0 else 0
        )

    def _rows(self, first: np.ndarray, last: np.ndarray, keys: np.ndarray) -> Rows:
        """Rows with the input tokens [first, last) (B,) and the lookahead, padded to the same length."""
        self.store.check()
        last = last + self.shape.lookahead
        length = self.shape.context + self.shape.lookahead if self.pack != "none" else int((last - first).max())
        index = first[:, None] + np.arange(length)
        real = index < last[:, None]
        ids = self.store.ids[np.minimum(index, len(self.store) - 1)].astype(np.int64)
        segments = None
        if not real.all():
            ids[~real], segments = self._pad, real.astype(np.int64)
        if self.pack == "docs":
            document = np.searchsorted(self.store.starts, index, side="right")
            segments = np.where(real, document - document[:, :1] + 1, 0)
        words, sentences = (
            None if of is None else of(ids) for of in (self.shape.word_starts_of, self.shape.sentence_starts_of)
        )
        return Rows(ids, keys, segments, words, sentence_starts=sentences)

    @property
    def _pad(self) -> int:
        vocabulary = self.store.vocabulary
        return next((id for id in (vocabulary.pad, vocabulary.separator) if id is not None), 0)

    @cached_property
    def _ends(self) -> np.ndarray:
        """End (exclusive) of each document's input tokens."""
        end = len(self.store) - 1 if self.store.separated else self._usable
        return np.append(self.store.starts[1:], end)

    @cached_property
    def _first_piece(self) -> np.ndarray:
        """(n_documents + 1,): index of each document's first piece, then the number of pieces."""
        pieces = np.maximum(1, -(-(self._ends - self.store.starts) // self.shape.context))
        return np.concatenate([[0], np.cumsum(pieces)])

    @property
    def _n_pieces(self) -> int:
        return int(self._first_piece[-1])

    def _pieces(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        document = np.searchsorted(self._first_piece, indices, side="right") - 1
        first = self.store.starts[document] + (indices - self._first_piece[document]) * self.shape.context
        return first, np.minimum(first + self.shape.context, self._ends[document])

"""From a stream of ids to rows: windows of it that ignore document borders or respect them, or one document a row.

An epoch of windows begins somewhere else each time, so that a token is not always read with the same past; the first
begins at 0. Evaluation asks for every target of the text exactly once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.token_store import TokenStore
from mini_tf.system.seeds import seed_of

FEWEST_TO_SHIFT = 8
"""Windows. With fewer, giving one up to let epochs begin elsewhere would waste too much of the text."""


@dataclass(frozen=True, eq=False)
class Packing:
    """Rows of `context` tokens and `lookahead` more, which are asked for but not read.

    concat: windows of the stream. docs: the same windows, with the document of each token in `segments`, from 1; a
    document begins at its opening separator, and the label of its last token is the separator that follows. none: one
    document a row, from its opening separator on, cut where it is longer; shorter ones are padded (segment 0).
    word_starts_of: finds out where words begin, if the objective asks for it. seed: of where epochs begin.
    """

    store: TokenStore
    context: int
    lookahead: int
    pack: Literal["docs", "concat", "none"] = "concat"
    word_starts_of: Callable[[np.ndarray], np.ndarray] | None = None
    seed: int = 0

    @property
    def _usable(self) -> int:
        """Tokens that have all they need behind them."""
        return len(self.store) - self.lookahead

    @cached_property
    def n_rows(self) -> int:
        """Rows an epoch, the same for all epochs."""
        if self.pack == "none":
            return self._n_pieces
        full = self._usable // self.context
        return full - 1 if full >= FEWEST_TO_SHIFT else max(1, full)

    @property
    def lengths(self) -> np.ndarray:
        """(n_rows,): tokens that each row reads."""
        if self.pack != "none":
            return np.full(self.n_rows, self.context)
        first, last = self._pieces(np.arange(self.n_rows))
        lengths: np.ndarray = last - first
        return lengths

    @property
    def row_tokens(self) -> float:
        """Tokens that a row reads, on average."""
        return self.context if self.pack != "none" else self._usable / self.n_rows

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        """These rows (B,) of an epoch, each with the key (B,) it will draw from."""
        return self._rows(*self._spans(rows, epoch), keys)

    def documents(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        """Which documents (from 0, each once) these rows (B,) of an epoch read; none where the text has not several."""
        if not self.store.separated or self.store.n_documents < 2:
            return np.empty(0, np.int64)
        first, last = self._spans(rows, epoch)
        index = first[:, None] + np.arange(self.context)
        read = index[index < last[:, None]]
        return np.unique(np.searchsorted(self.store.starts, read, side="right") - 1)

    def _spans(self, rows: np.ndarray, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The first token of each row (B,) of an epoch, and the one after its last, lookahead not counted."""
        if self.pack == "none":
            return self._pieces(rows)
        first = rows * self.context + self._shift(epoch)
        return first, np.minimum(first + self.context, self._usable)

    def eval_rows(self, batch_size: int, tokens: int | None = None) -> Iterator[Rows]:
        """Every target once, in the order of the text, in batches; with `tokens` only so many of them, up to a whole row.

        A row's key depends on its number alone, so what is masked is the same for every run and every batch size.
        """
        n = self._n_pieces if self.pack == "none" else -(-self._usable // self.context)
        seen = 0
        for begin in range(0, n, batch_size):
            numbers = np.arange(begin, min(begin + batch_size, n))
            if self.pack == "none":
                first, last = self._pieces(numbers)
            else:
                first, last = numbers * self.context, np.minimum((numbers + 1) * self.context, self._usable)
            before = seen + np.cumsum(last - first) - (last - first)
            asked = np.ones_like(numbers, bool) if tokens is None else before < tokens
            if not asked.any():
                return
            keys = np.array([seed_of("example", int(i)) for i in numbers[asked]], np.uint64)
            yield self._rows(first[asked], last[asked], keys)
            seen += int((last - first).sum())

    def _shift(self, epoch: int) -> int:
        slack = self._usable - self.n_rows * self.context
        return seed_of("epoch", self.seed, epoch) % min(self.context, slack + 1) if epoch and slack > 0 else 0

    def _rows(self, first: np.ndarray, last: np.ndarray, keys: np.ndarray) -> Rows:
        """Rows that read the tokens from `first` to before `last` (B,), padded to the same length."""
        self.store.check()
        last = last + self.lookahead
        whole = self.context + self.lookahead
        length = whole if self.pack != "none" else int((last - first).max())
        index = first[:, None] + np.arange(length)
        real = index < last[:, None]
        padded = not real.all()
        ids = self.store.ids[np.minimum(index, len(self.store) - 1)].astype(np.int64)
        if padded:
            ids[~real] = self._pad
        segments = None
        if self.pack == "docs":
            document = np.searchsorted(self.store.starts, index, side="right")
            segments = np.where(real, document - document[:, :1] + 1, 0)
        elif padded:
            segments = real.astype(np.int64)
        return Rows(ids, keys, segments, self.word_starts_of(ids) if self.word_starts_of else None)

    @property
    def _pad(self) -> int:
        vocabulary = self.store.vocabulary
        return next((id for id in (vocabulary.pad, vocabulary.separator) if id is not None), 0)

    @cached_property
    def _ends(self) -> np.ndarray:
        """Where each document's last readable token is, plus one."""
        end = len(self.store) - 1 if self.store.separated else self._usable
        return np.append(self.store.starts[1:], end)

    @cached_property
    def _first_piece(self) -> np.ndarray:
        """The number of each document's first piece, and at the end how many there are."""
        pieces = np.maximum(1, -(-(self._ends - self.store.starts) // self.context))
        return np.concatenate([[0], np.cumsum(pieces)])

    @property
    def _n_pieces(self) -> int:
        return int(self._first_piece[-1])

    def _pieces(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        document = np.searchsorted(self._first_piece, numbers, side="right") - 1
        first = self.store.starts[document] + (numbers - self._first_piece[document]) * self.context
        return first, np.minimum(first + self.context, self._ends[document])

"""Rows of the dataset `text`: windows on the ids, one document per row, or blocks of streamed text.

The windows of each epoch begin at another random offset, so that a token does not always have the same context; the
offset of the first epoch is 0. Evaluation contains every target exactly once.

A streamed corpus is cut into blocks of equally many places, each of which is tokenized when a row of it is read, and
every block has the same number of rows, which is the mean by the estimated number of tokens. The rows of a block begin
at evenly spaced tokens of it, from another offset in every epoch, and continue at its beginning behind its end. So in a
block with more tokens than the mean some are left out of an epoch, in one with fewer some are read twice; over several
epochs all are read equally often.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.packing import BlockLayout, Packing
from mini_tf.data.streamed_text import StreamedText, TokenizedPart
from mini_tf.system.errors import DataFault
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
        full: int = self._usable // self.shape.context
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
        if epoch == 0 or slack <= 0:
            return 0
        return seed_of("epoch", self.shape.seed, epoch) % min(self.shape.context, slack + 1)

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
        return self._with_starts(ids, keys, segments)

    def _with_starts(self, ids: np.ndarray, keys: np.ndarray, segments: np.ndarray | None) -> Rows:
        """Rows with the starts of words and sentences, if the objective needs them."""
        starts_of = self.shape.word_starts_of, self.shape.sentence_starts_of
        words, sentences = (None if of is None else of(ids) for of in starts_of)
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


MIN_BYTES, MAX_BYTES = 1 << 14, 1 << 16
"""Size of a block; larger ones only for a long context, or for large row groups of parquet."""
BLOCKS = 256
"""Blocks of a small corpus, whose blocks are smaller than MAX_BYTES."""
MIN_ROWS = 8
"""Rows of a block, at least: fewer would join the end and the beginning of too many blocks."""
OPEN_BYTES = 128 << 20
"""Bytes of the blocks that are in memory at once, at most."""
MAX_OPEN = 256
"""Blocks that are in memory at once, at most: with fewer of them, successive steps read too similar texts."""

SPARE = 8
"""Further blocks in memory: those of successive rows may overlap."""


@dataclass(frozen=True, eq=False)
class StreamedRows(Windows):
    """Training rows of a streamed corpus; the rows of an evaluation are those of the sample in `store`."""

    _open: "OrderedDict[int, TokenizedPart]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def _text(self) -> StreamedText:
        assert self.store.streamed is not None
        return self.store.streamed

    @cached_property
    def layout(self) -> BlockLayout:
        text, context = self._text, self.shape.context
        length, sampled, tokens = text.shards.length, max(1, text.sampled), max(1, text.sampled_tokens)
        least = -(-MIN_ROWS * context * sampled // tokens)
        group = max((shard.largest_group for shard in text.shards.shards), default=0)
        size = max(min(max(length // BLOCKS, MIN_BYTES), MAX_BYTES), least, group // 8)
        rows = max(1, (size * tokens + sampled * context // 2) // (sampled * context))
        n_blocks = max(1, (text.n_tokens + rows * context // 2) // (rows * context))
        return BlockLayout(n_blocks, rows, max(1, min(MAX_OPEN, OPEN_BYTES // size, n_blocks)))

    @property
    def n_rows(self) -> int:
        return self.layout.n_blocks * self.layout.rows

    @property
    def row_tokens(self) -> float:
        return self.shape.context

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        blocks, windows = np.divmod(rows, self.layout.rows)
        length = self.shape.context + self.shape.lookahead
        ids, segments = np.empty((2, len(rows), length), np.int64)
        for block in np.unique(blocks).tolist():
            chosen, part = blocks == block, self._block(block)
            n = len(part.ids)
            offset = seed_of("epoch", self.shape.seed, epoch, block) % n
            index = (windows[chosen] * n // self.layout.rows + offset)[:, None] + np.arange(length)
            ids[chosen] = part.ids[index % n]
            segments[chosen] = np.searchsorted(part.starts, index % n, side="right") + index // n * len(part.starts)
        numbers = segments - segments[:, :1] + 1 if self.pack == "docs" else None
        return self._with_starts(ids, keys, numbers)

    def documents(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        """Empty: documents of a streamed corpus have no numbers; see `names`."""
        return np.empty(0, np.int64)

    def names(self, rows: np.ndarray) -> list[str]:
        return [self._text.shards.names(*self._places(block)) for block in np.unique(rows // self.layout.rows).tolist()]

    def _places(self, block: int) -> tuple[int, int]:
        n, length = self.layout.n_blocks, self._text.shards.length
        return block * length // n, (block + 1) * length // n

    def _block(self, block: int) -> TokenizedPart:
        """The tokens of a block; the blocks read last are kept in memory."""
        with self._lock:
            if (part := self._open.get(block)) is None:
                part = self._open[block] = self._read(block)
            self._open.move_to_end(block)
            while len(self._open) > self.layout.n_open + SPARE:
                self._open.popitem(last=False)
            return part

    def _read(self, block: int) -> TokenizedPart:
        """The block, with those that follow if it has fewer tokens than a row: documents may be longer than a block."""
        ids, starts, n = list[np.ndarray](), list[np.ndarray](), 0
        for number in range(self.layout.n_blocks):
            part = self._text.read(*self._places((block + number) % self.layout.n_blocks))
            ids.append(part.ids)
            starts.append(part.starts + n)
            n += len(part.ids)
            if n >= self.shape.context + self.shape.lookahead:
                break
        if not n:
            raise DataFault("data.train: no text")
        return TokenizedPart(np.concatenate(ids), np.unique(np.concatenate(starts)))

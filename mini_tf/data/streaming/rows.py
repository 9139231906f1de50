"""Rows of a streamed corpus: windows on blocks, each of which is tokenized when a row of it is read.

The corpus is cut into blocks of equally many places, and every block has the same number of rows, which is the mean by
the estimated number of tokens. The rows of a block begin at evenly spaced tokens of it, from another offset in every
epoch, and continue at its beginning behind its end. So in a block with more tokens than the mean some are left out of
an epoch, in one with fewer some are read twice; over several epochs all are read equally often.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.packing import BlockLayout
from mini_tf.data.streaming.text import StreamedText, TokenizedPart
from mini_tf.data.windows import Windows
from mini_tf.system.errors import DataFault
from mini_tf.system.seeds import seed_of

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
        words, sentences = (
            None if of is None else of(ids) for of in (self.shape.word_starts_of, self.shape.sentence_starts_of)
        )
        return Rows(ids, keys, numbers, words, sentence_starts=sentences)

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

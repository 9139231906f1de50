"""From stored examples to rows: one example a row between two separators, with what is asked beside it.

What is longer than the context loses its end (classes, numbers; of two texts first the longer one, as BERT does) or its beginning
(conversations, whose end is asked for); tagged words are cut into several rows before a word, so that every word is asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.example_store import ExampleStore
from mini_tf.data.forms import FORMS
from mini_tf.system.errors import DataFault
from mini_tf.system.seeds import seed_of


class _Spans(NamedTuple):
    """Of each row, (n_rows,): its example, the first of its ids in the store and the one after its last; from the id at `gap` on so many
    are `skipped`."""

    examples: np.ndarray
    first: np.ndarray
    last: np.ndarray
    gap: np.ndarray
    skipped: np.ndarray


@dataclass(frozen=True, eq=False)
class Labelling:
    """Rows of labelled examples; what else reads text asks it what it asks a `Packing`."""

    store: ExampleStore
    context: int

    pack = "none"

    @property
    def lookahead(self) -> int:
        return FORMS[self.store.form].LOOKAHEAD

    @property
    def n_rows(self) -> int:
        """An epoch reads each once."""
        return len(self._spans.examples)

    @cached_property
    def lengths(self) -> np.ndarray:
        """(n_rows,): tokens that each row reads."""
        _, first, last, _, skipped = self._spans
        lengths: np.ndarray = last - first - skipped + 2 - self.lookahead
        return lengths

    @cached_property
    def row_tokens(self) -> float:
        """Tokens that a row reads, on average."""
        return float(self.lengths.mean())

    @property
    def n_longer(self) -> int:
        """Examples that are longer than the context."""
        return int((self._room < self.store.tokens.lengths).sum())

    @property
    def n_cut(self) -> int:
        """Examples of which something is left out."""
        return 0 if FORMS[self.store.form].CUTS == "rows" else self.n_longer

    @property
    def _room(self) -> int:
        """Ids of an example that a row has room for, beside its two separators."""
        return self.context + self.lookahead - 2

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        """These rows (B,), the same in every epoch, each with the key (B,) it will draw from."""
        self.store.check()
        examples, first, last, gap, skipped = (part[rows] for part in self._spans)
        tokens, separator = self.store.tokens, self.store.vocabulary.separator
        places, closes = np.arange(int((last - first - skipped).max()) + 2), (last - first - skipped + 1)[:, None]
        closing, real = places == closes, places <= closes
        index = first[:, None] - 1 + places
        index = np.minimum(index + np.where(index >= gap[:, None], skipped[:, None], 0), len(tokens) - 1)
        ids, labels = tokens.ids[index].astype(np.int64), self.store.labels[index]
        ids[:, 0], ids[closing], ids[~real] = separator, separator, 0
        labels[~real] = np.nan
        labels[first - 1 != tokens.starts[examples], 0] = np.nan
        # What closes a conversation is asked for where its last token is.
        labels[closing] = self.store.labels[last - 1] if self.lookahead else np.nan
        return Rows(ids, keys, None if real.all() else real.astype(np.int64), labels=labels, examples=examples.astype(np.int64))

    def documents(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        """Which examples these rows read."""
        return np.unique(self._spans.examples[rows])

    def eval_rows(self, batch_size: int, tokens: int | None = None) -> Iterator[Rows]:
        """Every row once, in order, in batches; with `tokens` only the first that have so many."""
        n = self.n_rows if tokens is None else min(self.n_rows, 1 + int(np.searchsorted(np.cumsum(self.lengths), tokens)))
        for begin in range(0, n, batch_size):
            numbers = np.arange(begin, min(begin + batch_size, n))
            yield self.take(numbers, 0, np.array([seed_of("example", int(i)) for i in numbers], np.uint64))

    @cached_property
    def _spans(self) -> _Spans:
        """Rows that ask for nothing are left out; DataFault where all are."""
        starts, labels = self.store.tokens.starts, self.store.labels
        spans = {"end": self._heads, "beginning": self._tails, "rows": self._parts}[FORMS[self.store.form].CUTS]()
        asked = np.append(0, np.cumsum(~np.isnan(labels)))
        opens = spans.first - 1 == starts[spans.examples]
        asks = asked[spans.last] > asked[spans.first - opens]
        if not asks.any():
            raise DataFault(f"in none of {len(starts):,} examples is anything asked for, as far as {self.context} tokens reach")
        return _Spans(*(part[asks] for part in spans))

    def _heads(self) -> _Spans:
        """Of a text its beginning; of two the beginnings of both, of which the longer one gives way until they are alike."""
        tokens, room = self.store.tokens, self._room
        first, last = tokens.starts + 1, tokens.starts + 1 + tokens.lengths
        examples, none = np.arange(len(first)), np.zeros(len(first), np.int64)
        borders = np.flatnonzero(tokens.ids == tokens.vocabulary.separator)
        borders = np.setdiff1d(borders, np.append(tokens.starts, len(tokens) - 1))
        if not len(borders):
            return _Spans(examples, first, np.minimum(last, first + room), last, none)
        one, other = borders - first, last - borders - 1
        kept = np.minimum(one, np.maximum(room - 1 - other, room // 2))
        return _Spans(examples, first, borders + 1 + np.minimum(other, room - 1 - kept), first + kept, one - kept)

    def _tails(self) -> _Spans:
        """Of conversations their ends."""
        first = self.store.tokens.starts + 1
        last = first + self.store.tokens.lengths
        return _Spans(np.arange(len(first)), np.maximum(first, last - self._room), last, last, np.zeros_like(first))

    def _parts(self) -> _Spans:
        """Of tagged words all, in as many rows as they need."""
        first = self.store.tokens.starts + 1
        last = first + self.store.tokens.lengths
        parts = [self._windows(n, int(begin), int(end)) for n, (begin, end) in enumerate(zip(first, last, strict=True))]
        examples, begins, ends = (np.array(one) for one in zip(*(window for part in parts for window in part), strict=True))
        return _Spans(examples, begins, ends, ends, np.zeros_like(begins))

    def _windows(self, example: int, first: int, last: int) -> list[tuple[int, int, int]]:
        """An example in parts that fit, each cut before a word if a word begins in it; what no word begins in is the rest of a long one."""
        found = []
        while last - first > self._room:
            words = np.flatnonzero(~np.isnan(self.store.labels[first + 1 : first + self._room + 1]))
            cut = first + 1 + int(words[-1]) if len(words) else first + self._room
            found.append((example, first, cut))
            first = cut
        return [*found, (example, first, last)]

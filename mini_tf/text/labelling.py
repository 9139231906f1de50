"""From stored examples to rows: one example a row between two separators, with what is asked beside it.

What is longer than the context loses its end (classes, numbers) or its beginning (conversations, whose end is asked for); tagged
words are cut into several rows before a word, so that every word is asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mini_tf.seeds import seed_of
from mini_tf.text.batch import Rows
from mini_tf.text.example_store import ExampleStore
from mini_tf.text.forms import FORMS
from mini_tf.text.pairing import document_lengths


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
        return len(self._spans[0])

    @cached_property
    def lengths(self) -> np.ndarray:
        """(n_rows,): tokens that each row reads."""
        _, first, last = self._spans
        lengths: np.ndarray = last - first + 2 - self.lookahead
        return lengths

    @cached_property
    def row_tokens(self) -> float:
        """Tokens that a row reads, on average."""
        return float(self.lengths.mean())

    @cached_property
    def n_cut(self) -> int:
        """Examples of which something is left out, since they are longer than the context."""
        if FORMS[self.store.form].CUTS == "rows":
            return 0
        return int((self._room < document_lengths(self.store.tokens)).sum())

    @property
    def _room(self) -> int:
        """Ids of an example that a row has room for, beside its two separators."""
        return self.context + self.lookahead - 2

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        """These rows (B,), the same in every epoch, each with the key (B,) it will draw from."""
        self.store.check()
        examples, first, last = (part[rows] for part in self._spans)
        tokens, separator = self.store.tokens, self.store.vocabulary.separator
        index = first[:, None] - 1 + np.arange(int((last - first).max()) + 2)
        closing = (last - first + 1)[:, None] == np.arange(index.shape[1])
        real = index <= last[:, None]
        index = np.minimum(index, len(tokens) - 1)
        ids, labels = tokens.ids[index].astype(np.int64), self.store.labels[index]
        ids[:, 0], ids[closing], ids[~real] = separator, separator, 0
        labels[~real] = np.nan
        labels[first - 1 != tokens.starts[examples], 0] = np.nan
        # What closes a conversation is asked for where its last token is.
        labels[closing] = self.store.labels[last - 1] if self.lookahead else np.nan
        return Rows(ids, keys, None if real.all() else real.astype(np.int64), labels=labels)

    def documents(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        """Which examples these rows read."""
        return np.unique(self._spans[0][rows])

    def eval_rows(self, batch_size: int, tokens: int | None = None) -> Iterator[Rows]:
        """Every row once, in order, in batches; with `tokens` only the first that have so many."""
        n = self.n_rows if tokens is None else min(self.n_rows, 1 + int(np.searchsorted(np.cumsum(self.lengths), tokens)))
        for begin in range(0, n, batch_size):
            numbers = np.arange(begin, min(begin + batch_size, n))
            yield self.take(numbers, 0, np.array([seed_of("example", int(i)) for i in numbers], np.uint64))

    @cached_property
    def _lengths(self) -> np.ndarray:
        return document_lengths(self.store.tokens)

    @cached_property
    def _spans(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each row: its example, and the first of its ids and the one after its last."""
        first = self.store.tokens.starts + 1
        last = first + self._lengths
        examples = np.arange(len(first))
        cuts = FORMS[self.store.form].CUTS
        if cuts == "end":
            return examples, first, np.minimum(last, first + self._room)
        if cuts == "beginning":
            return examples, np.maximum(first, last - self._room), last
        parts = [self._windows(int(n), int(begin), int(end)) for n, begin, end in zip(examples, first, last, strict=True)]
        numbers, begins, ends = (np.array(one) for one in zip(*(window for part in parts for window in part), strict=True))
        return numbers, begins, ends

    def _windows(self, example: int, first: int, last: int) -> list[tuple[int, int, int]]:
        """An example in parts that fit, each cut before a word if a word begins in it; what no word begins in is the rest of a long one."""
        found = []
        while last - first > self._room:
            words = np.flatnonzero(~np.isnan(self.store.labels[first + 1 : first + self._room + 1]))
            cut = first + 1 + int(words[-1]) if len(words) else first + self._room
            found.append((example, first, cut))
            first = cut
        found.append((example, first, last))
        return [part for part in found if not np.isnan(self.store.labels[part[1] : part[2]]).all()]

"""Words, and a tag for each, at its first token: sep words sep.

What is longer than the context is cut before words into several rows, so that every word is predicted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from mini_tf.data.datasets._labelled import Labelled, class_labels, class_numbers, cut_rows, nothing_left, room_of
from mini_tf.data.examples import Example
from mini_tf.data.formats import cells
from mini_tf.data.formats.cells import Cell
from mini_tf.data.labels import Labels
from mini_tf.data.packing import Packing, Shape, Spans
from mini_tf.data.store import Encoded, Store, Tokenizers
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.system.errors import DataFault


class Settings(Labelled):
    COLUMNS_HINT = "words and their tags are read: {text: COLUMN, label: COLUMN}"
    ALIASES = {"text": "words"}
    CUTS = None
    LEAST_CLASSES = 2

    labels: tuple[str, ...] | None = None
    """The tags by name; by default those of the training side."""

    def example(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], labelled: bool) -> Example:
        words = cells.words_of(row["text"], where, names["text"])
        tags = cells.labels_of(row["label"], where, names["label"]) if labelled else []
        if labelled and len(tags) != len(words):
            raise DataFault(f"{where}: {len(words)} words, but {len(tags)} tags; each word has one", where=(where,))
        return Example(words, tags, where)

    def texts(self, example: Example, source: bool = False) -> Sequence[str]:
        return (" ".join(example.texts),)

    def labels_of(self, examples: Iterable[Example]) -> Labels:
        return class_labels((one.labels for one in examples), self.labels)

    def classes(self, example: Example) -> Sequence[str]:
        return example.labels

    def encode(self, examples: Sequence[Example], used: Tokenizers, labels: Labels | None) -> list[Encoded]:
        assert labels is not None
        return [self._encode(one, used.target, class_numbers(one, labels)) for one in examples]

    def _encode(self, example: Example, tokenizer: Tokenizer, tags: Sequence[int]) -> Encoded:
        ids, spans = tokenizer.spans(*self.texts(example))
        if not ids.size:
            raise nothing_left(example)
        lengths = np.array([len(word) for word in example.texts])
        ends = np.cumsum(lengths + 1) - 1
        opened, closed = np.array(spans).T
        # The first token that reaches into the word.
        first = np.minimum(np.searchsorted(closed, ends - lengths, side="right"), len(ids) - 1)
        reached = (opened[first] < ends) & (closed[first] > ends - lengths)
        if not reached.all() or len(np.unique(first)) < len(first):
            raise DataFault(
                f"{example.where}: the tokenizer makes one token of several words, or leaves nothing of one", where=(example.where,)
            )
        labels = np.full(len(ids) + 1, np.nan, np.float32)
        labels[first] = tags or 0
        return Encoded(ids, labels)

    def packing(self, store: Store, shape: Shape) -> Packing:
        ends = store.starts + 1 + store.lengths
        windows = (window for n, end in enumerate(ends) for window in self._windows(store, room_of(shape), n, int(end)))
        documents, first, last = (np.array(one) for one in zip(*windows, strict=True))
        return cut_rows(store, shape, Spans.of(first, last, documents))

    def _windows(self, store: Store, room: int, document: int, last: int) -> Iterator[tuple[int, int, int]]:
        """A document in parts that fit, each cut before a word if a word begins in it; what no word begins in is the rest of a long one."""
        assert store.labels is not None
        first = int(store.starts[document]) + 1
        while last - first > room:
            words = np.flatnonzero(~np.isnan(store.labels[first + 1 : first + room + 1]))
            cut = first + 1 + int(words[-1]) if len(words) else first + room
            yield document, first, cut
            first = cut
        yield document, first, last

"""Token classification: sep words sep, with the tag of each word at its first token.

An example longer than the context is split before words into several rows, so that every word is predicted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from mini_tf.data.datasets import TokenizedData
from mini_tf.data.datasets._labelled import LabelledDataset, class_ids, class_labels, max_example_ids, rows_with_targets
from mini_tf.data.examples import Example, Labels
from mini_tf.data.formats import columns
from mini_tf.data.formats.columns import Cell
from mini_tf.data.packing import Packing, Shape, Spans
from mini_tf.data.store import Encoded, Store, Tokenizers
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import between_characters
from mini_tf.scores.entities import OUTSIDE, lax_rules, mark_entities
from mini_tf.system.errors import DataFault


class Settings(LabelledDataset):
    COLUMNS_HINT = "needed: {text: COLUMN, label: COLUMN}"
    ROLE_ALIASES = {"text": "words"}
    TRUNCATES = None
    MIN_CLASSES = 2

    labels: tuple[str, ...] | None = None
    """Names of the tags; default: those of the training split."""

    def example(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], labelled: bool) -> Example:
        words = columns.words_of(row["text"], where, names["text"])
        tags = columns.labels_of(row["label"], where, names["label"]) if labelled else []
        if labelled and len(tags) != len(words):
            one_label = "a label of a whole text is for sst2-nano or classify-nano" if len(tags) == 1 else None
            fault = f"{len(words)} words, but {len(tags)} tags; the numbers must be equal"
            raise DataFault.located(where, fault, hint=one_label)
        return Example(words, tags, where)

    def texts(self, example: Example, source: bool = False) -> Sequence[str]:
        return (" ".join(example.texts),)

    def fit_labels(self, examples: Iterable[Example]) -> Labels:
        pairs = Counter[tuple[str, str]]()

        def counted() -> Iterator[Sequence[str]]:
            for example in examples:
                pairs.update(pairwise([OUTSIDE, *example.labels, OUTSIDE]))
                yield example.labels

        labels = class_labels(counted(), self.labels)
        return replace(labels, lax=lax_rules(labels.names, pairs)) if mark_entities(labels.names) else labels

    def summary(self, data: TokenizedData) -> Iterator[str]:
        yield from super().summary(data)
        names = () if data.labels is None else data.labels.names
        if OUTSIDE in names and not mark_entities(names):
            yield (
                f"tags are scored word by word: for entity F1 all but {OUTSIDE} must mark entities, such as B-PER and"
                " I-PER"
            )

    def encode(self, examples: Sequence[Example], tokenizers: Tokenizers, labels: Labels | None) -> list[Encoded]:
        assert labels is not None
        return [self._encode(example, tokenizers.target, class_ids(example, labels)) for example in examples]

    def _encode(self, example: Example, tokenizer: Tokenizer, tags: Sequence[int]) -> Encoded:
        ids, spans = tokenizer.spans(*self.texts(example))
        lengths = np.array([len(word) for word in example.texts])
        ends, unknown = np.cumsum(lengths + 1) - 1, tokenizer.vocabulary.unk
        starts, token_ends = ends - lengths, np.array([last for _, last in spans], int)
        # The first token of each word is the first one that ends within or behind it.
        first = np.searchsorted(token_ends, starts, side="right")
        lost = np.array([n == len(ids) or spans[n][0] >= end for n, end in zip(first, ends, strict=True)])
        if lost.any() and unknown is None:
            raise _fault(example, f"the tokenizer drops the word {example.texts[int(lost.argmax())]!r}")
        # A word that normalizes to nothing, such as U+200B, becomes the unknown token.
        ids, first = np.insert(ids, first[lost], unknown or 0), first + np.cumsum(lost) - lost
        if shared := [n for n in range(1, len(first)) if first[n] == first[n - 1]]:
            message = f"a token spans the words {example.texts[shared[0] - 1]!r} and {example.texts[shared[0]]!r}"
            raise _fault(example, message)
        labels = np.full(len(ids) + 1, np.nan, np.float32)
        labels[first] = tags or 0
        return Encoded(ids, labels)

    def packing(self, store: Store, shape: Shape) -> Packing:
        ends = store.starts + 1 + store.lengths
        windows = (
            window for n, end in enumerate(ends) for window in self._windows(store, max_example_ids(shape), n, int(end))
        )
        documents, first, last = (np.array(column) for column in zip(*windows, strict=True))
        return rows_with_targets(store, shape, Spans.of(first, last, documents))

    def _windows(self, store: Store, limit: int, document: int, last: int) -> Iterator[tuple[int, int, int]]:
        """(document, first, last) of parts of at most `limit` ids, split before words.

        A longer word is split between characters.
        """
        assert store.labels is not None
        first = int(store.starts[document]) + 1
        while last - first > limit:
            words = np.flatnonzero(~np.isnan(store.labels[first + 1 : first + limit + 1]))
            within = between_characters(store.vocabulary, store.ids, first + limit, first)
            cut = first + 1 + int(words[-1]) if len(words) else int(within)
            yield document, first, cut
            first = cut
        yield document, first, last


def _fault(example: Example, reason: str) -> DataFault:
    return DataFault.located(example.where, f"{reason}, so that it cannot have a tag", hint="remove the example")

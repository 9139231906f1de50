"""What datasets of labelled examples share: their labels, how they are refused, and what people are told of them."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from mini_tf.data import describing
from mini_tf.data.batch import Batch, Rows
from mini_tf.data.datasets import TEXTS, Dataset, TokenizedData
from mini_tf.data.examples import Example
from mini_tf.data.formats import cells
from mini_tf.data.formats.cells import Cell
from mini_tf.data.labels import Labels, unknown_label
from mini_tf.data.packing import OneEach, Packing, Shape, Spans
from mini_tf.data.store import Encoded, Store
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.drawing.labels import caption
from mini_tf.system.errors import DataFault
from mini_tf.system.safe_text import safe_text
from mini_tf.system.strict_json import short

MOST = 12
"""Labels that are told one by one."""
MOST_CLASSES = 20
"""More different labels than this, and than half of all labels, are no classes."""
LISTED = 50
"""Labels that the table of `data stats` names."""


class Labelled(Dataset):
    """Examples with texts and answers."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("text", "label")
    LABELS = frozenset({"label"})
    LIKELY: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "text": TEXTS,
        "label": ("labels", "class", "category", "stars", "rating", "sentiment", "target", "intent", "topic", "score"),
        "text_pair": ("sentence2", "hypothesis"),
    }
    MIN_TOKENS = 8
    LEAST_CLASSES: ClassVar[int] = 0
    """Classes that a run has learnt at least."""

    def to_json(self, example: Example) -> list[Any]:
        return [example.texts, example.labels, example.further]

    def of_json(self, given: Any, where: str) -> Example:
        texts, answers, further = given
        return Example(texts, answers, where, tuple(further))

    def texts(self, example: Example, source: bool = False) -> Sequence[str]:
        return example.texts

    def known_by(self, example: Example) -> str:
        return "\0".join(example.texts)

    def whole(self, example: Example) -> str:
        return "\0".join([*example.texts, "", *example.labels])

    def labels_of(self, examples: Iterable[Example]) -> Labels:
        """None of their own, unless a subclass says otherwise."""
        return Labels()

    def read_labels(self, config: Mapping[str, Any]) -> Labels:
        labels = Labels.of_json(config["labels"])
        if len(labels.names) < self.LEAST_CLASSES:
            raise ValueError(f"labels.names must be {self.LEAST_CLASSES} classes at least")
        return labels

    def label_figures(self, store: Store, labels: Labels) -> dict[str, float]:
        """What is known of the labels of a store, by name: how often each class stands there, unless a subclass says otherwise."""
        counts = np.bincount(labels_in(store).astype(int), minlength=len(labels.names)).tolist()
        return dict(zip(labels.names, counts, strict=True))

    def summary(self, text: TokenizedData) -> Iterator[str]:
        yield f"data: {text.train.n_documents:,} training {self.UNIT}, {text.val.n_documents:,} validation {self.UNIT}"
        yield f"lengths: {describing.lengths(text.train)}"
        labels = text.labels
        if labels is not None and labels.names:
            held_out = [*self.label_figures(text.val, labels).values()]
            order = np.argsort([-count for count in labels.counts], kind="stable")[:MOST]
            told = ", ".join(f"{_named(labels.names[n])} {labels.counts[n]:,} (+{held_out[n]:,})" for n in order)
            yield f"labels: {told}{f' and {len(labels.names) - MOST} more' if len(labels.names) > MOST else ''}"
            if missing := [name for name, count in zip(labels.names, labels.counts, strict=True) if not count]:
                yield f"no example to learn from: {', '.join(map(_named, missing[:MOST]))}"

    def stats(self, text: TokenizedData, packings: Mapping[str, Packing]) -> tuple[list[str], dict[str, Any]]:
        """A cut example loses a part, or makes several rows."""
        assert text.labels is not None
        sides = {side: describing.measure(store) | {"cut": packings[side].n_longer} for side, store in text.sides.items()}
        figures = {side: self.label_figures(store, text.labels) for side, store in text.sides.items()}
        known = ({self.known_by(one) for one in self.examples(store)} for store in text.sides.values())
        becomes = f"loses its {self.CUTS}" if self.CUTS else "makes several rows"
        shared, size = len(set.intersection(*known)), text.tokenizer.vocabulary.size
        lines = [
            *describing.columns(sides),
            f"cut: longer than train.context {packings['train'].shape.context}; such an example {becomes}",
            f"vocabulary: {size:,} tokens",
            f"{self.KNOWN_BY or self.UNIT} on both sides: {shared}",
            "",
            *describing.columns({side: {caption(name): figures[side][name] for name in list(figures[side])[:LISTED]} for side in figures}),
        ]
        if (left := len(figures["train"]) - LISTED) > 0:
            lines.append(f"and {left:,} labels more; --json has them all")
        told = {side: sides[side] | {"labels": figures[side]} for side in sides}
        return lines, {**told, "vocabulary": size, "examples_on_both_sides": shared}

    def labels_of_row(self, rows: Rows, row: int, labels: Labels) -> list[Any]:
        """What is predicted at each place of a row, as people read it, None = nothing: a class, unless a subclass says otherwise."""
        given = rows.labels[row] if rows.labels is not None else np.full(rows.ids.shape[1], np.nan)
        if rows.row_labels is not None:
            given = np.append(rows.row_labels[row, 0], given[1:])
        return [None if np.isnan(label) else self.label(float(label), labels) for label in given]

    def label(self, stored: float, labels: Labels) -> Any:
        """One label as people read it."""
        return labels.names[int(stored)]

    def shown(self, text: TokenizedData, rows: Rows, batch: Batch, row: int, training: bool) -> dict[str, Any]:
        """`target` is the label where it is predicted."""
        assert text.labels is not None
        original = describing.without_padding(rows, row)
        drawn = batch.draws.get("ids") if training else None  # only training hides something
        # Of a row that the objective divides, the parts are not where the row is.
        read = (rows.ids if drawn is None or len(drawn) != len(rows.ids) else drawn.numpy())[row, : len(original)]
        targets, hidden = self.labels_of_row(rows, row, text.labels), describing.hidden(text.tokenizer, read, original)
        places = [
            one | {"target": target, "replaced": replaced}
            for one, target, replaced in zip(describing.read_of(text.tokenizer, read), targets, hidden, strict=False)
        ]
        return {"padding": rows.ids.shape[1] - len(places), "places": places}

    def table(self, row: Mapping[str, Any], head: str) -> list[str]:
        """An example, with its label beside the token where it is predicted, and what is hidden from the model."""
        hides = any(place["replaced"] is not None for place in row["places"])
        names = (f"{'place':>7}", ("reads", "is asked for", *(["original"] if hides else [])))
        cells = ((f"{one['place']:>7}", (one["reads"], one["target"], one["replaced"])) for one in row["places"])
        return [f"{head}: {describing.size_of(row)}", *describing.table([names, *cells])]


class Texts(Labelled):
    """A text, or two, with one label for all of it."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("text_pair",)
    COLUMNS_HINT = "a text and its class are read: {text: COLUMN, label: COLUMN}, and text_pair where there are two texts"

    def example(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], labelled: bool) -> Example:
        texts = [text_of(row[role], where, names[role]) for role in ("text", "text_pair") if role in row]
        return Example(texts, [self.answer(row["label"], where, names["label"])] if labelled else [], where)

    def answer(self, cell: Cell, where: str, name: str) -> str:
        """The label of a cell."""
        raise NotImplementedError

    def labels_of(self, examples: Iterable[Example]) -> Labels:
        """Whether there are two texts is said by the first example."""
        left = iter(examples)
        first = next(left)
        return replace(self.learnt(one.labels for one in itertools.chain([first], left)), n_texts=len(first.texts))

    def learnt(self, answers: Iterable[Sequence[str]]) -> Labels:
        """What there is to predict, by the answers of the training side."""
        raise NotImplementedError

    def packing(self, store: Store, shape: Shape) -> Packing:
        """Of a text its beginning; of two the beginnings of both, of which the longer one gives way until they are alike."""
        room, first, lengths = room_of(shape), store.starts + 1, store.lengths
        last, n_longer = first + lengths, int((room < lengths).sum())
        borders = np.flatnonzero(store.ids == store.vocabulary.separator)
        borders = np.setdiff1d(borders, np.append(store.starts, len(store) - 1))
        if not len(borders):
            return OneEach(store, shape, Spans.of(first, np.minimum(last, first + room)), None, n_longer)
        one, other = borders - first, last - borders - 1
        kept = np.minimum(one, np.maximum(room - 1 - other, room // 2))
        spans = Spans.of(first, borders + 1 + np.minimum(other, room - 1 - kept))
        return OneEach(store, shape, replace(spans, gap=first + kept, skipped=one - kept), None, n_longer)

    def encode_texts(self, examples: Sequence[Example], tokenizer: Tokenizer, answers: Iterable[Any], n_texts: int) -> list[Encoded]:
        """As many texts as the training side has, separators between, each example with its answer (k,)."""
        for one in examples:
            if len(one.texts) != n_texts:
                told = "is missing; examples have two texts" if n_texts == 2 else "is one too many; examples have one text"
                raise DataFault(f"{one.where}: 'text_pair' {told}", hint="all rows have the same columns", where=(one.where,))
        ids = [joined(parts, tokenizer) for parts in encoded_parts(examples, tokenizer)]
        return [Encoded(one, row_labels=np.atleast_1d(np.float32(answer))) for one, answer in zip(ids, answers, strict=True)]


def text_of(cell: Cell, where: str, name: str) -> str:
    """A text that is not empty."""
    text = cells.text_of(cell, where, name)
    if not text.strip():
        raise DataFault(f"{where}: {short(name)!r} is empty", hint="remove the row", where=(where,))
    return text


def room_of(shape: Shape) -> int:
    """Ids of an example that a row has room for, beside its two separators."""
    return shape.context + shape.lookahead - 2


def cut_rows(store: Store, shape: Shape, spans: Spans) -> OneEach:
    """Rows of which those with no label are left out; DataFault where all are."""
    assert store.labels is not None
    labelled = np.append(0, np.cumsum(~np.isnan(store.labels)))
    asks = labelled[spans.last] > labelled[spans.first]
    if not asks.any():
        raise DataFault(f"in none of {store.n_documents:,} examples is anything asked for, as far as {shape.context} tokens reach")
    return OneEach(store, shape, spans.chosen(asks), None, int((room_of(shape) < store.lengths).sum()))


def labels_in(store: Store) -> np.ndarray:
    """(n,): all labels of a store."""
    found = np.asarray(store.labels if store.row_labels is None else store.row_labels)
    there: np.ndarray = found[~np.isnan(found)].astype(float)
    return there


def class_labels(answers: Iterable[Sequence[str]], wanted: Sequence[str] | None) -> Labels:
    """The classes among the answers of the training side; wanted: all of them, where the recipe names them, in its order."""
    found = Counter(name for one in answers for name in one)
    if not wanted and len(found) > max(MOST_CLASSES, found.total() / 2):
        told = f"{len(found):,} different labels among {found.total():,}: their column seems to hold something else"
        raise DataFault(told, hint="data.fields={text: COLUMN, label: COLUMN} says which it is; objective.labels names classes")
    whole = all(name.removeprefix("-").isdecimal() and name.isascii() for name in found)
    order = list(wanted) if wanted else sorted(found, key=lambda name: (float(name), name) if whole else name)
    if len(order) < 2:
        hint = "give data.val a file of its own, or another data.split, if another class was held out"
        told = f"all labels to learn from are {short(order[0])!r}" if order else "no example to learn from has a label"
        raise DataFault(f"{told}; there must be two classes at least", hint=hint)
    return Labels(tuple(order), tuple(found[name] for name in order))


def class_numbers(example: Example, labels: Labels) -> list[int]:
    """The numbers of the classes that an example names; DataFault where one is unknown."""
    numbers = {name: n for n, name in enumerate(labels.names)}
    for name in example.labels:
        if name not in numbers:
            raise unknown_label(name, labels.names, example.where)
    return [numbers[name] for name in example.labels]


def encoded_parts(examples: Sequence[Example], tokenizer: Tokenizer) -> Iterator[list[np.ndarray]]:
    """The ids of each text of each example; DataFault where nothing is left of one."""
    encoded = iter(tokenizer.encode_batch([text for one in examples for text in one.texts]))
    for one in examples:
        parts = [next(encoded) for _ in one.texts]
        if not all(ids.size for ids in parts):
            raise nothing_left(one)
        yield parts


def joined(parts: Sequence[np.ndarray], tokenizer: Tokenizer) -> np.ndarray:
    """Texts with a separator between each two."""
    separator = np.array([tokenizer.vocabulary.separator], np.int32)
    return np.concatenate([piece for part in parts for piece in (separator, part)][1:])


def nothing_left(example: Example) -> DataFault:
    return DataFault(f"{example.where}: the tokenizer leaves nothing of the text", where=(example.where,))


def _named(label: str) -> str:
    """A label on one line, cut where it is long."""
    return safe_text(short(label)).replace("\n", "\\n").replace("\t", "\\t")

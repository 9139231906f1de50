"""Base classes and functions of datasets of labelled examples."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, ClassVar

import numpy as np

from mini_tf.data import describing
from mini_tf.data.batch import Batch, Rows
from mini_tf.data.datasets import TEXT_COLUMNS, Dataset, TokenizedData
from mini_tf.data.examples import Example, Labels, unknown_label
from mini_tf.data.formats import columns
from mini_tf.data.formats.columns import Cell
from mini_tf.data.packing import ExampleRows, Packing, Shape, Spans
from mini_tf.data.store import Encoded, Store
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import between_characters, or_unknown
from mini_tf.drawing.labels import caption
from mini_tf.recipe.data import LABEL_COLUMNS
from mini_tf.system.errors import DataFault
from mini_tf.system.safe_text import safe_text
from mini_tf.system.strict_json import short

MAX_SUMMARY_LABELS = 12
"""Classes listed at the start of a run."""
MAX_CLASSES = 20
"""More distinct labels than this (than half of it if they are sentences), and than half of all labels, are refused."""
MAX_TABLE_LABELS = 50
"""Classes listed by `data stats`."""
SECOND_TEXTS = ("sentence2", "hypothesis")
"""Common names of columns with a second text."""


class LabelledDataset(Dataset):
    """Base class of datasets whose examples are `Example`."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("text", "label")
    LABELS = frozenset({"label"})
    COMMON_NAMES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "text": TEXT_COLUMNS,
        "label": LABEL_COLUMNS,
        "text_pair": SECOND_TEXTS,
    }
    MIN_TOKENS = 8
    MIN_CLASSES: ClassVar[int] = 0
    """Minimum number of classes of a run; 0: labels are no classes."""
    CAPTIONS: ClassVar[Mapping[str, str]] = {}
    """Names of `label_statistics` in `data stats`, where they differ from the keys in --json."""

    def to_json(self, example: Example) -> list[Any]:
        return [example.texts, example.labels, example.alternatives]

    def of_json(self, fields: Any, where: str) -> Example:
        texts, labels, alternatives = fields
        return Example(texts, labels, where, tuple(alternatives))

    def texts(self, example: Example, source: bool = False) -> Sequence[str]:
        return example.texts

    def split_key(self, example: Example) -> str:
        return "\0".join(example.texts)

    def content_key(self, example: Example) -> str:
        return "\0".join([*example.texts, "", *example.labels])

    def classes(self, example: Example) -> Sequence[str]:
        return example.labels if self.MIN_CLASSES else ()

    def fit_labels(self, examples: Iterable[Example]) -> Labels:
        """Default: no classes."""
        return Labels()

    def read_labels(self, config: Mapping[str, Any]) -> Labels:
        labels = Labels.of_json(config["labels"])
        if len(labels.names) < self.MIN_CLASSES:
            raise ValueError(f"labels.names must have at least {self.MIN_CLASSES} classes")
        return labels

    def label_statistics(self, store: Store, labels: Labels) -> dict[str, float]:
        """Statistics of the labels of a store, by name; default: the number of labels of each class."""
        counts = np.bincount(stored_labels(store).astype(int), minlength=len(labels.names)).tolist()
        return dict(zip(labels.names, counts, strict=True))

    def summary(self, data: TokenizedData) -> Iterator[str]:
        yield f"data: {self.size_summary(data)}"
        yield f"lengths: {describing.length_summary(data.train)}"
        labels = data.labels
        if labels is not None and labels.names:
            val_counts = [*self.label_statistics(data.val, labels).values()]
            order = np.argsort([-count for count in labels.counts], kind="stable")[:MAX_SUMMARY_LABELS]
            counts = ", ".join(f"{_printable(labels.names[n])} {labels.counts[n]:,}/{val_counts[n]:,}" for n in order)
            more = len(labels.names) - MAX_SUMMARY_LABELS
            yield f"labels (training/validation): {counts}{f' and {more} more' if more > 0 else ''}"
            if missing := [name for name, count in zip(labels.names, labels.counts, strict=True) if not count]:
                yield f"classes without training examples: {_listed(missing)}"
            if single := [name for name, count in zip(labels.names, labels.counts, strict=True) if count == 1]:
                yield f"classes with a single training example, from which little is learned: {_listed(single)}"

    def stats(self, data: TokenizedData, packings: Mapping[str, Packing]) -> tuple[list[str], dict[str, Any]]:
        assert data.labels is not None
        splits = {
            split: describing.store_statistics(store) | {"cut": packings[split].n_too_long}
            for split, store in data.splits.items()
        }
        of_labels = {split: self.label_statistics(store, data.labels) for split, store in data.splits.items()}
        keys = (set(map(self.split_key, self.examples(store))) for store in data.splits.values())
        consequence = f"is cut and loses its {self.TRUNCATES}" if self.TRUNCATES else "is split into several rows"
        shared, size = len(set.intersection(*keys)), data.tokenizer.vocabulary.size
        names, context = [*of_labels["train"]], f"train.context ({packings['train'].shape.context} tokens)"
        listed = {
            split: {self.CAPTIONS.get(name, caption(name)): numbers[name] for name in names[:MAX_TABLE_LABELS]}
            for split, numbers in of_labels.items()
        }
        lines = [
            *describing.format_statistics(splits),
            f"an example longer than {context} with its separators {consequence}",
            f"vocabulary: {size:,} tokens",
            f"{self.SPLIT_UNIT or self.UNIT} in both splits: {shared}",
            "",
            *describing.format_columns(listed),
        ]
        if (more := len(names) - MAX_TABLE_LABELS) > 0:
            lines.append(f"and {more:,} more labels; --json lists all")
        result = {split: splits[split] | {"labels": of_labels[split]} for split in splits}
        return lines, {**result, "vocabulary": size, "examples_on_both_sides": shared}

    def labels_of_row(self, rows: Rows, row: int, labels: Labels) -> list[Any]:
        """The label of each position of a row, decoded; None = no label."""
        stored = rows.labels[row] if rows.labels is not None else np.full(rows.ids.shape[1], np.nan)
        if rows.row_labels is not None:
            stored = np.append(rows.row_labels[row, 0], stored[1:])
        return [None if np.isnan(label) else self.decode_label(float(label), labels) for label in stored]

    def decode_label(self, stored: float, labels: Labels) -> Any:
        """A stored label in its original form; default: the name of the class."""
        return labels.names[int(stored)]

    def describe_row(self, data: TokenizedData, rows: Rows, batch: Batch, row: int, training: bool) -> dict[str, Any]:
        """`target` is the label, at the position where it is predicted."""
        assert data.labels is not None
        original = describing.ids_without_padding(rows, row)
        drawn = batch.extras.get("ids") if training else None  # ids are replaced in training only
        # If the objective makes several rows of one, the drawn ids are not aligned with this row.
        inputs = (rows.ids if drawn is None or len(drawn) != len(rows.ids) else drawn.numpy())[row, : len(original)]
        targets = self.labels_of_row(rows, row, data.labels)
        replaced = describing.replaced_tokens(data.tokenizer, inputs, original)
        tokens = describing.tokens_by_position(data.tokenizer, inputs)
        positions = [
            token | {"target": target, "replaced": before}
            for token, target, before in zip(tokens, targets, replaced, strict=False)
        ]
        return {"padding": rows.ids.shape[1] - len(positions), "positions": positions}

    def row_table(self, row: Mapping[str, Any], head: str) -> list[str]:
        """The column `original` is left out if no token is replaced."""
        return describing.token_table(row, head, any(token["replaced"] is not None for token in row["positions"]))


class LabelledTexts(LabelledDataset):
    """Base class of datasets with one text or two and one label per example."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("text_pair",)
    FURTHER_TEXTS = frozenset({*SECOND_TEXTS, "text_pair", "question2", "text2"})
    COLUMNS_HINT = "needed: {text: COLUMN, label: COLUMN}, and text_pair for pairs of texts"

    def example(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], labelled: bool) -> Example:
        texts = [text_of(row[role], where, names[role]) for role in ("text", "text_pair") if role in row]
        [label] = self.LABELS
        return Example(texts, self.parse_labels(row[label], where, names[label]) if labelled else [], where)

    def parse_labels(self, cell: Cell, where: str, name: str) -> list[str]:
        """The labels in a cell, one unless the dataset says otherwise; DataFault if it is invalid."""
        raise NotImplementedError

    def fit_labels(self, examples: Iterable[Example]) -> Labels:
        """The first example decides the number of texts per example."""
        rest = iter(examples)
        first = next(rest)
        labels = self.labels_from(example.labels for example in itertools.chain([first], rest))
        return replace(labels, n_texts=len(first.texts))

    def labels_from(self, values: Iterable[Sequence[str]]) -> Labels:
        """values: the labels of each training example."""
        raise NotImplementedError

    def packing(self, store: Store, shape: Shape) -> Packing:
        """Truncates at the end, between characters; of two texts the longer one first, until both are equally long."""
        limit, first, lengths = max_example_ids(shape), store.starts + 1, store.lengths
        last, n_too_long = first + lengths, int((limit < lengths).sum())

        def cut(ends: np.ndarray, starts: np.ndarray) -> np.ndarray:
            return between_characters(store.vocabulary, store.ids, ends, starts)

        borders = np.flatnonzero(store.ids == store.vocabulary.separator)
        borders = np.setdiff1d(borders, np.append(store.starts, len(store) - 1))
        if not len(borders):
            whole = Spans.of(first, cut(np.minimum(last, first + limit), first))
            return ExampleRows(store, shape, whole, None, n_too_long)
        n_first, n_second = borders - first, last - borders - 1
        n_used = np.minimum(n_first, np.maximum(limit - 1 - n_second, limit // 2))
        spans = Spans.of(first, cut(borders + 1 + np.minimum(n_second, limit - 1 - n_used), borders + 1))
        gap = cut(first + n_used, first)
        return ExampleRows(store, shape, replace(spans, gap=gap, skipped=borders - gap), None, n_too_long)

    def encode_texts(
        self, examples: Sequence[Example], tokenizer: Tokenizer, labels: Iterable[Any], n_texts: int
    ) -> list[Encoded]:
        """Examples of `n_texts` texts, joined by separators; labels: a scalar or (k,) for each."""
        for example in examples:
            if len(example.texts) != n_texts:
                wanted = "is not allowed; examples have one text", "is missing; examples have two texts"
                hint = "all rows must have the same columns"
                raise DataFault.located(example.where, f"'text_pair' {wanted[n_texts - 1]}", hint=hint)
        ids = [join_by_separators(parts, tokenizer) for parts in encode_parts(examples, tokenizer)]
        return [
            Encoded(text_ids, row_labels=np.atleast_1d(np.float32(label)))
            for text_ids, label in zip(ids, labels, strict=True)
        ]


def text_of(cell: Cell, where: str, name: str) -> str:
    """The text of a cell; DataFault if it is blank."""
    text = columns.text_of(cell, where, name)
    if not text.strip():
        raise DataFault.located(where, f"{short(name)!r} is empty", hint="remove the row")
    return text


def max_example_ids(shape: Shape) -> int:
    """Maximum ids of an example in a row, without its two separators."""
    return shape.context + shape.lookahead - 2


def rows_with_targets(store: Store, shape: Shape, spans: Spans) -> ExampleRows:
    """The rows that have a label; DataFault if there are none."""
    assert store.labels is not None
    n_labels = np.append(0, np.cumsum(~np.isnan(store.labels)))
    has_labels = n_labels[spans.last] > n_labels[spans.first]
    if not has_labels.any():
        raise DataFault(f"none of {store.n_documents:,} examples has a target within {shape.context} tokens")
    n_too_long = int((max_example_ids(shape) < store.lengths).sum())
    return ExampleRows(store, shape, spans.select(has_labels), None, n_too_long)


def stored_labels(store: Store) -> np.ndarray:
    """(n,): all labels of a store."""
    stored = np.asarray(store.labels if store.row_labels is None else store.row_labels)
    labels: np.ndarray = stored[~np.isnan(stored)].astype(float)
    return labels


def class_labels(values: Iterable[Sequence[str]], names: Sequence[str] | None) -> Labels:
    """values: the labels of each training example. names: all classes in order, if the recipe lists them."""
    counts = Counter(name for labels_ in values for name in labels_)
    words = median([len(name.split()) for name in counts] or [0])
    most = MAX_CLASSES // 2 if words > 5 else MAX_CLASSES
    if not names and len(counts) > max(most, counts.total() / 2):
        fault = f"{len(counts):,} different labels among {counts.total():,}: their column does not seem to be the label"
        way = "numbers are predicted by objective.kind=regress; else " if all(map(_is_number, counts)) else ""
        hint = f"{way}set 'data.fields={{text: COLUMN, label: COLUMN}}', or list the classes in objective.labels; of a"
        hint = f"{hint} table without a header, data.header=false 'data.fields={{text: 0, label: 1}}'"
        raise DataFault(fault, hint=hint)
    integers = all(name.removeprefix("-").isdecimal() and name.isascii() for name in counts)
    order = list(names) if names else sorted(counts, key=lambda name: (float(name), name) if integers else name)
    if len(order) < 2:
        hint = "use a data.val file or another data.split if the other class is in the validation data"
        fault = f"all training labels are {short(order[0])!r}" if order else "no training example has a label"
        raise DataFault(f"{fault}; at least two classes are needed", hint=hint)
    return Labels(tuple(order), tuple(counts[name] for name in order))


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False


def class_ids(example: Example, labels: Labels) -> list[int]:
    """The ids of an example's classes; DataFault if one is unknown."""
    if unknown := [name for name in example.labels if name not in labels.ids]:
        raise unknown_label(unknown[0], labels.names, example.where)
    return [labels.ids[name] for name in example.labels]


def encode_parts(examples: Sequence[Example], tokenizer: Tokenizer) -> Iterator[list[np.ndarray]]:
    """The ids of each text of each example, at least one; DataFault if a text has none, and no unknown one."""
    encoded = iter(tokenizer.encode_batch([text for example in examples for text in example.texts]))
    for example in examples:
        parts = [or_unknown(next(encoded), tokenizer.vocabulary) for _ in example.texts]
        if not all(ids.size for ids in parts):
            raise DataFault.located(example.where, "the text has no tokens")
        yield parts


def join_by_separators(parts: Sequence[np.ndarray], tokenizer: Tokenizer) -> np.ndarray:
    separator = np.array([tokenizer.vocabulary.separator], np.int32)
    return np.concatenate([piece for part in parts for piece in (separator, part)][1:])


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MAX_SUMMARY_LABELS
    return ", ".join(map(_printable, names[:MAX_SUMMARY_LABELS])) + (f" and {more} more" if more > 0 else "")


def _printable(label: str) -> str:
    """A label on one line, shortened if long."""
    return safe_text(short(label)).replace("\n", "\\n").replace("\t", "\\t")

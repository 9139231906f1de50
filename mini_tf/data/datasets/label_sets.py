"""Texts with any number of labels each, of one text or two: {"text": "so long, so sad", "labels": ["sad", "long"]}."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.datasets._labelled import LabelledTexts, class_ids, class_labels
from mini_tf.data.examples import Example, Labels
from mini_tf.data.formats import columns
from mini_tf.data.formats.columns import Cell
from mini_tf.data.store import Encoded, Store, Tokenizers


class Settings(LabelledTexts):
    REQUIRED = ("text", "labels")
    LABELS = frozenset({"labels"})
    COMMON_NAMES = {
        **LabelledTexts.COMMON_NAMES,
        "labels": ("label", "tags", "topics", "categories", "genres", "emotions", "classes"),
    }
    MIN_CLASSES = 2
    COLUMNS_HINT = "needed: {text: COLUMN, labels: COLUMN}, and text_pair for pairs of texts"

    labels: tuple[str, ...] | None = None
    """Names of the labels; default: those of the training split."""
    separator: str = ","
    """Between the labels of a text that are one text."""

    def parse_labels(self, cell: Cell, where: str, name: str) -> list[str]:
        """A list of labels, or a text with separators, which may be empty: each label once."""
        parts = cell.split(self.separator) if isinstance(cell, str) else cell if isinstance(cell, list) else [cell]
        filled = (part for part in parts if not isinstance(part, str) or part.strip())
        return list(dict.fromkeys(columns.label_of(part, where, name) for part in filled))

    def labels_from(self, values: Iterable[Sequence[str]]) -> Labels:
        return class_labels(values, self.labels)

    def encode(self, examples: Sequence[Example], tokenizers: Tokenizers, labels: Labels | None) -> list[Encoded]:
        """The labels of a row are (C,): 1 for each label that it has, else 0."""
        assert labels is not None
        rows = np.zeros((len(examples), len(labels.names)), np.float32)
        for row, example in zip(rows, examples, strict=True):
            row[class_ids(example, labels)] = 1
        return self.encode_texts(examples, tokenizers.target, rows, labels.n_texts)

    def label_statistics(self, store: Store, labels: Labels) -> dict[str, float]:
        assert store.row_labels is not None
        return dict(zip(labels.names, np.asarray(store.row_labels).sum(0).astype(int).tolist(), strict=True))

    def labels_of_row(self, rows: Rows, row: int, labels: Labels) -> list[Any]:
        """All labels at the first position."""
        assert rows.row_labels is not None
        names = [labels.names[n] for n in np.flatnonzero(rows.row_labels[row])]
        return [f"{self.separator} ".join(names), *(None for _ in rows.ids[row, 1:])]

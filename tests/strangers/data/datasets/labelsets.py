"""Texts with any number of labels each: {"text": ..., "labels": ["sad", "long"]}."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.datasets._labelled import Texts, class_labels, class_numbers, classes_of_json, text_of
from mini_tf.data.examples import Example
from mini_tf.data.formats.cells import Cell, label_of
from mini_tf.data.labels import Labels
from mini_tf.data.store import Encoded, Store, Tokenizers
from mini_tf.system.errors import DataFault


class Settings(Texts):
    REQUIRED = ("text", "labels")
    OPTIONAL = ()
    LABELS = frozenset({"labels"})
    ADVICE = "a text and its labels are read: {text: COLUMN, labels: COLUMN}"

    def example(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], labelled: bool) -> Example:
        given = row["labels"] if labelled else []
        if not isinstance(given, list):
            raise DataFault(f"{where}: {names['labels']!r} must be a list of labels", where=(where,))
        return Example([text_of(row["text"], where, names["text"])], [label_of(one, where, names["labels"]) for one in given], where)

    def learnt(self, answers: Iterable[Sequence[str]]) -> Labels:
        return class_labels(answers, None)

    def read_labels(self, config: Mapping[str, Any]) -> Labels:
        return classes_of_json(config["labels"])

    def encode(self, examples: Sequence[Example], used: Tokenizers, labels: Labels | None) -> list[Encoded]:
        assert labels is not None
        rows = np.zeros((len(examples), len(labels.names)), np.float32)
        for row, one in zip(rows, examples, strict=True):
            row[class_numbers(one, labels)] = 1
        return self.encode_texts(examples, used.target, rows, 1)

    def label_figures(self, store: Store, labels: Labels) -> dict[str, float]:
        assert store.row_labels is not None
        return dict(zip(labels.names, np.asarray(store.row_labels).sum(0).astype(int).tolist(), strict=True))

    def labels_of_row(self, rows: Rows, row: int, labels: Labels) -> list[Any]:
        assert rows.row_labels is not None
        told = ", ".join(labels.names[n] for n in np.flatnonzero(rows.row_labels[row]))
        return [told, *(None for _ in rows.ids[row, 1:])]

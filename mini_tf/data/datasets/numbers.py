"""Regression, of one text or two: sep text (sep text) sep, with one label per example, (number - mean) / scale."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from mini_tf.data.datasets import TokenizedData
from mini_tf.data.datasets._labelled import LabelledTexts, stored_labels
from mini_tf.data.examples import Example, Labels
from mini_tf.data.formats import columns
from mini_tf.data.formats.columns import Cell
from mini_tf.data.store import Encoded, Store, Tokenizers
from mini_tf.system.errors import DataFault


class Settings(LabelledTexts):
    def parse_labels(self, cell: Cell, where: str, name: str) -> list[str]:
        return [repr(columns.number_of(cell, where, name))]

    def labels_from(self, values: Iterable[Sequence[str]]) -> Labels:
        numbers = np.array([float(labels_[0]) for labels_ in values])
        with np.errstate(over="ignore", invalid="ignore"):
            mean, scale = float(numbers.mean()), float(numbers.std())
        if numbers.min() == numbers.max():
            raise DataFault(f"data.train: all labels are {numbers[0]:g}; they must differ")
        if not (np.isfinite(scale) and scale > 0):
            fault = f"labels from {numbers.min():g} to {numbers.max():g} are too large or too close for float32"
            raise DataFault(f"data.train: {fault}")
        return Labels(mean=mean, scale=scale)

    def encode(self, examples: Sequence[Example], tokenizers: Tokenizers, labels: Labels | None) -> list[Encoded]:
        assert labels is not None
        numbers = (float(example.labels[0]) if example.labels else labels.mean for example in examples)
        scaled = [(number - labels.mean) / labels.scale for number in numbers]
        return self.encode_texts(examples, tokenizers.target, scaled, labels.n_texts)

    def label_statistics(self, store: Store, labels: Labels) -> dict[str, float]:
        """Mean, standard deviation, minimum and maximum of the numbers."""
        numbers = stored_labels(store) * labels.scale + labels.mean
        return {name: float(f"{getattr(numbers, name)():.6g}") for name in ("mean", "std", "min", "max")}

    def decode_label(self, stored: float, labels: Labels) -> float:
        """In its original unit, to the digits of float32."""
        return float(f"{stored * labels.scale + labels.mean:.6g}")

    def summary(self, data: TokenizedData) -> Iterator[str]:
        yield from super().summary(data)
        if data.labels is not None:
            yield f"labels: mean {data.labels.mean:.4g}, standard deviation {data.labels.scale:.4g}"

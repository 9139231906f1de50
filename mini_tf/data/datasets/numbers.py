"""A text, or two, and their number: sep text (sep text) sep, labelled as a whole by (number - mean) / scale."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from mini_tf.data.datasets import TokenizedData
from mini_tf.data.datasets._labelled import Texts, labels_in
from mini_tf.data.examples import Example
from mini_tf.data.formats import cells
from mini_tf.data.formats.cells import Cell
from mini_tf.data.labels import Labels
from mini_tf.data.store import Encoded, Store, Tokenizers
from mini_tf.system.errors import DataFault


class Settings(Texts):
    COLUMNS_HINT = "a text and its number are read: {text: COLUMN, label: COLUMN}, and text_pair where there are two texts"

    def answer(self, cell: Cell, where: str, name: str) -> str:
        return repr(cells.number_of(cell, where, name))

    def learnt(self, answers: Iterable[Sequence[str]]) -> Labels:
        numbers = np.array([float(one[0]) for one in answers])
        with np.errstate(over="ignore", invalid="ignore"):
            mean, scale = float(numbers.mean()), float(numbers.std())
        if numbers.min() == numbers.max():
            raise DataFault(f"data.train: all labels are {numbers[0]:g}; there is nothing to learn from them")
        if not (np.isfinite(scale) and scale > 0):
            raise DataFault(f"data.train: labels from {numbers.min():g} to {numbers.max():g} are too large, or too close, to compute with")
        return Labels(mean=mean, scale=scale)

    def encode(self, examples: Sequence[Example], used: Tokenizers, labels: Labels | None) -> list[Encoded]:
        assert labels is not None
        numbers = [(float(one.labels[0]) - labels.mean) / labels.scale if one.labels else 0.0 for one in examples]
        return self.encode_texts(examples, used.target, numbers, labels.n_texts)

    def label_figures(self, store: Store, labels: Labels) -> dict[str, float]:
        """How the numbers are spread."""
        numbers = labels_in(store) * labels.scale + labels.mean
        return {name: float(f"{getattr(numbers, name)():.6g}") for name in ("mean", "std", "min", "max")}

    def label(self, stored: float, labels: Labels) -> float:
        """In its own unit, as far as single precision goes."""
        return float(f"{stored * labels.scale + labels.mean:.6g}")

    def summary(self, text: TokenizedData) -> Iterator[str]:
        yield from super().summary(text)
        if text.labels is not None:
            yield f"labels: mean {text.labels.mean:.4g}, standard deviation {text.labels.scale:.4g}"

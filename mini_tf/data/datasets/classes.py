"""Texts or pairs of texts with a class: sep text (sep text) sep, labeled as a whole."""

from collections.abc import Iterable, Sequence

from mini_tf.data.datasets._labelled import Texts, class_labels, class_numbers
from mini_tf.data.examples import Example
from mini_tf.data.formats import cells
from mini_tf.data.formats.cells import Cell
from mini_tf.data.labels import Labels
from mini_tf.data.store import Encoded, Tokenizers


class Settings(Texts):
    LEAST_CLASSES = 2

    labels: tuple[str, ...] | None = None
    """Names of the classes; default: those of the training split."""

    def answer(self, cell: Cell, where: str, name: str) -> str:
        return cells.label_of(cell, where, name)

    def learnt(self, answers: Iterable[Sequence[str]]) -> Labels:
        return class_labels(answers, self.labels)

    def classes(self, example: Example) -> Sequence[str]:
        return example.labels

    def encode(self, examples: Sequence[Example], used: Tokenizers, labels: Labels | None) -> list[Encoded]:
        assert labels is not None
        numbers = [class_numbers(one, labels)[0] if one.labels else 0 for one in examples]
        return self.encode_texts(examples, used.target, numbers, labels.n_texts)

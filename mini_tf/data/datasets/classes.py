"""Text classification, of one text or two: sep text (sep text) sep, with one label per example."""

from collections.abc import Iterable, Sequence

from mini_tf.data.datasets._labelled import LabelledTexts, class_ids, class_labels
from mini_tf.data.examples import Example, Labels
from mini_tf.data.formats import columns
from mini_tf.data.formats.columns import Cell
from mini_tf.data.store import Encoded, Tokenizers


class Settings(LabelledTexts):
    MIN_CLASSES = 2
    STRATIFIED = True

    labels: tuple[str, ...] | None = None
    """Names of the classes; default: those of the training split."""

    def parse_labels(self, cell: Cell, where: str, name: str) -> list[str]:
        return [columns.label_of(cell, where, name)]

    def labels_from(self, values: Iterable[Sequence[str]]) -> Labels:
        return class_labels(values, self.labels)

    def encode(self, examples: Sequence[Example], tokenizers: Tokenizers, labels: Labels | None) -> list[Encoded]:
        assert labels is not None
        ids = [class_ids(example, labels)[0] if example.labels else 0 for example in examples]
        return self.encode_texts(examples, tokenizers.target, ids, labels.n_texts)

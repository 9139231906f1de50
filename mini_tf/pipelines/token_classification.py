"""Token classification: a tag for each word, with its probability."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.data.examples import Example
from mini_tf.data.labels import Labels
from mini_tf.pipelines import Prediction, Subject
from mini_tf.pipelines._predicting import Predicting, PredictingSettings
from mini_tf.scores import ENTITY_METRICS, TAG_METRICS
from mini_tf.scores.entities import entity_scores, mark_entities


class Settings(PredictingSettings):
    FIGURES = TAG_METRICS
    MAIN = ("entity_f1", "accuracy")
    SPOKEN = ("f1_macro", "entity_f1")
    PICTURES = {"confusion": False}

    def figures(self, classes: Sequence[str] | None = None) -> tuple[str, ...]:
        """Of tags that mark entities those of entities, else of words."""
        lacking = () if classes is None else ("f1_macro",) if mark_entities(classes) else ENTITY_METRICS
        return tuple(name for name in self.FIGURES if name not in lacking)

    def classes_of(self, figure: str, classes: Sequence[str]) -> Sequence[str]:
        if figure != "entity_f1":
            return super().classes_of(figure, classes)
        return [*dict.fromkeys(tag.partition("-")[2] or "_" for tag in classes if tag != "O")]

    def build(self, subject: Subject) -> "TokenClassification":
        return TokenClassification(subject)


class TokenClassification(Predicting):
    def metric_accumulator(self) -> "Tags":
        return Tags(self.labels)

    def predictions(self, outputs: Tensor, examples: Sequence[Example]) -> list[Prediction]:
        probabilities, lengths = outputs.softmax(-1), [len(example.texts) for example in examples]
        both = zip(examples, probabilities.argmax(-1).split(lengths), probabilities.amax(-1).split(lengths), strict=True)
        names = self.labels.names
        return [Prediction([names[n] for n in tags.tolist()], sure.tolist(), {"words": one.texts}) for one, tags, sure in both]


class Tags:
    """The tags that were named, beside those that are right, sentence by sentence.

    One that is longer than the context comes as several rows, one behind the other, of the same example.
    """

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._truth, self._given = list[list[str]](), list[list[str]]()
        self._example: int | None = None

    def add(self, batch: Batch, outputs: Tensor) -> None:
        assert batch.target_positions is not None
        rows, length = batch.inputs.ids.shape
        borders = np.cumsum(np.bincount((batch.target_positions // length).cpu().numpy(), minlength=rows))[:-1]
        truth, given = (np.split(tags.cpu().numpy(), borders) for tags in (batch.labels, outputs.argmax(-1)))
        examples = batch.extras["examples"].tolist() if "examples" in batch.extras else [None] * rows
        for example, *row in zip(examples, truth, given, strict=True):
            for sentences, tags in zip((self._truth, self._given), row, strict=True):
                if example is None or example != self._example:
                    sentences.append([])
                sentences[-1] += [self.labels.names[tag] for tag in tags.tolist()]
            self._example = example

    def scores(self) -> dict[str, float]:
        return entity_scores(self._truth, self._given, self.labels.names)

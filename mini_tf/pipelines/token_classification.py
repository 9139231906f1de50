"""Token classification: a tag for each word, with its probability."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.data.examples import Example
from mini_tf.data.labels import Labels
from mini_tf.pipelines import ModelBundle, Prediction
from mini_tf.pipelines._prediction import PredictionPipeline, PredictionPipelineSettings, mean_probabilities
from mini_tf.scores import ENTITY_METRICS, TAG_METRICS
from mini_tf.scores.entities import entity_scores, mark_entities


class Settings(PredictionPipelineSettings):
    METRICS = TAG_METRICS
    MAIN_METRICS = ("entity_f1", "accuracy")
    SUMMARY_METRICS = ("f1_macro", "entity_f1")
    ENSEMBLES = True
    PLOTS = {"confusion": False}

    def metrics_for(self, classes: Sequence[str] | None = None) -> tuple[str, ...]:
        """Entity metrics for BIO tags, otherwise macro F1 over words."""
        excluded = () if classes is None else ("f1_macro",) if mark_entities(classes) else ENTITY_METRICS
        return tuple(name for name in self.METRICS if name not in excluded)

    def classes_of(self, metric: str, classes: Sequence[str]) -> Sequence[str]:
        if metric != "entity_f1":
            return super().classes_of(metric, classes)
        return [*dict.fromkeys(tag.partition("-")[2] or "_" for tag in classes if tag != "O")]

    def build(self, bundle: ModelBundle) -> "TokenClassification":
        return TokenClassification(bundle)


class TokenClassification(PredictionPipeline):
    def metric_accumulator(self) -> "TagAccumulator":
        return TagAccumulator(self.labels)

    def predictions(self, outputs: Tensor, examples: Sequence[Example]) -> list[Prediction]:
        probabilities, lengths = outputs.softmax(-1), [len(example.texts) for example in examples]
        rows = zip(examples, probabilities.argmax(-1).split(lengths), probabilities.amax(-1).split(lengths), strict=True)
        names = self.labels.names
        return [Prediction([names[n] for n in tags.tolist()], p.tolist(), {"words": example.texts}) for example, tags, p in rows]

    def average(self, outputs: Sequence[Tensor], labels: Sequence[Labels]) -> Tensor:
        return mean_probabilities(outputs)


class TagAccumulator:
    """Accumulates true and predicted tags, one list per sentence.

    A sentence longer than the context is split into consecutive rows with the same example number.
    """

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._truth, self._predicted = list[list[str]](), list[list[str]]()
        self._example: int | None = None

    def add(self, batch: Batch, outputs: Tensor) -> None:
        assert batch.target_positions is not None
        rows, length = batch.inputs.ids.shape
        borders = np.cumsum(np.bincount((batch.target_positions // length).cpu().numpy(), minlength=rows))[:-1]
        truth, predicted = (np.split(tags.cpu().numpy(), borders) for tags in (batch.labels, outputs.argmax(-1)))
        examples = batch.extras["examples"].tolist() if "examples" in batch.extras else [None] * rows
        for example, *row in zip(examples, truth, predicted, strict=True):
            for sentences, tags in zip((self._truth, self._predicted), row, strict=True):
                if example is None or example != self._example:
                    sentences.append([])
                sentences[-1] += [self.labels.names[tag] for tag in tags.tolist()]
            self._example = example

    def scores(self) -> dict[str, float]:
        return entity_scores(self._truth, self._predicted, self.labels.names)

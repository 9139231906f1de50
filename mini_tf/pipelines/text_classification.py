"""Text classification: the class of a text, or of two, with the probability of every class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.data.labels import Labels
from mini_tf.pipelines import Prediction, Subject
from mini_tf.pipelines._predicting import Predicting, PredictingSettings
from mini_tf.scores import CLASS_METRICS
from mini_tf.scores.classes import class_scores
from mini_tf.training.evaluation import ClassProbabilities


class Settings(PredictingSettings):
    FIGURES = CLASS_METRICS
    MAIN = ("accuracy",)
    SPOKEN = ("f1_macro",)
    PICTURES = {"confusion": True, "calibration": False}

    def build(self, subject: Subject) -> "TextClassification":
        return TextClassification(subject)


class TextClassification(Predicting):
    def metric_accumulator(self) -> "Classes":
        return Classes(self.labels)

    def predictions(self, outputs: Tensor, examples: Sequence[Any]) -> list[Prediction]:
        names, probabilities = self.labels.names, outputs.softmax(-1)
        every = [dict(zip(names, row, strict=True)) for row in probabilities.tolist()]
        return [Prediction(names[n], scores) for n, scores in zip(probabilities.argmax(-1).tolist(), every, strict=True)]


class Classes(ClassProbabilities):
    """The classes that were named, beside those that are right; probabilities (N, C)."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._truth, self._probabilities = list[np.ndarray](), list[np.ndarray]()

    def add(self, batch: Batch, outputs: Tensor) -> None:
        self._truth.append(batch.labels.cpu().numpy())
        self._probabilities.append(outputs.softmax(-1).cpu().numpy())

    @property
    def truth(self) -> np.ndarray:
        return np.concatenate(self._truth)

    @property
    def probabilities(self) -> np.ndarray:
        return np.concatenate(self._probabilities)

    def scores(self) -> dict[str, float]:
        return class_scores(self.truth, self.probabilities.argmax(1), self.labels.names)

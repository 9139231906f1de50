"""Regression: the number of a text, or of two, in its own unit."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.data.labels import Labels
from mini_tf.pipelines import Prediction, Subject
from mini_tf.pipelines._predicting import Predicting, PredictingSettings
from mini_tf.scores import REGRESSION_METRICS
from mini_tf.scores.numbers import number_scores


class Settings(PredictingSettings):
    FIGURES = REGRESSION_METRICS
    SPOKEN = ("pearson", "spearman")

    def build(self, subject: Subject) -> "Regression":
        return Regression(subject)


class Regression(Predicting):
    def metric_accumulator(self) -> "Numbers":
        return Numbers(self.labels)

    def predictions(self, outputs: Tensor, examples: Sequence[Any]) -> list[Prediction]:
        return [Prediction(output * self.labels.scale + self.labels.mean, {}) for output in outputs.squeeze(-1).tolist()]


class Numbers:
    """The numbers that were given, beside those that are right, in their own unit."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._truth, self._given = list[np.ndarray](), list[np.ndarray]()

    def add(self, batch: Batch, outputs: Tensor) -> None:
        self._truth.append(batch.labels.cpu().numpy())
        self._given.append(outputs.squeeze(-1).cpu().numpy())

    def scores(self) -> dict[str, float]:
        # In doubles, since numbers may be far from 0 and near to each other.
        truth, given = (np.concatenate(side).astype(np.float64) for side in (self._truth, self._given))
        return number_scores(*(side * self.labels.scale + self.labels.mean for side in (truth, given)))

"""Text classification: a class for a text or a pair of texts, with the probabilities of all classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.data.labels import Labels
from mini_tf.pipelines import ModelBundle, Prediction
from mini_tf.pipelines._prediction import PredictionPipeline, PredictionPipelineSettings, mean_probabilities
from mini_tf.scores import CLASS_METRICS
from mini_tf.scores.classes import class_scores
from mini_tf.training.evaluation import ClassProbabilities


class Settings(PredictionPipelineSettings):
    METRICS = CLASS_METRICS
    MAIN_METRICS = ("accuracy",)
    SUMMARY_METRICS = ("f1_macro",)
    ENSEMBLES = True
    PLOTS = {"confusion": True, "calibration": False}

    def build(self, bundle: ModelBundle) -> "TextClassification":
        return TextClassification(bundle)


class TextClassification(PredictionPipeline):
    def metric_accumulator(self) -> "ClassAccumulator":
        return ClassAccumulator(self.labels)

    def predictions(self, outputs: Tensor, examples: Sequence[Any]) -> list[Prediction]:
        names, probabilities = self.labels.names, outputs.softmax(-1)
        by_name = [dict(zip(names, row, strict=True)) for row in probabilities.tolist()]
        return [Prediction(names[n], scores) for n, scores in zip(probabilities.argmax(-1).tolist(), by_name, strict=True)]

    def average(self, outputs: Sequence[Tensor], labels: Sequence[Labels]) -> Tensor:
        return mean_probabilities(outputs)


class ClassAccumulator(ClassProbabilities):
    """Accumulates true classes (N,) and class probabilities (N, C)."""

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

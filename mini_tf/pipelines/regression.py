"""Regression: a number for a text or a pair of texts, in the unit of the labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.data.examples import Labels
from mini_tf.pipelines import ModelBundle, Prediction
from mini_tf.pipelines._prediction import PredictionPipeline, PredictionPipelineSettings
from mini_tf.scores import REGRESSION_METRICS
from mini_tf.scores.label_scores import number_scores
from mini_tf.trained.opening import Trained


class Settings(PredictionPipelineSettings):
    METRICS = REGRESSION_METRICS
    LOWER_IS_BETTER = ("rmse",)
    ENSEMBLES = True
    SUMMARY_METRICS = ("pearson", "spearman")

    def build(self, bundle: ModelBundle) -> "Regression":
        return Regression(bundle)


class Regression(PredictionPipeline):
    def metric_accumulator(self) -> "RegressionAccumulator":
        return RegressionAccumulator(self.labels)

    def predictions(self, outputs: Tensor, examples: Sequence[Any]) -> list[Prediction]:
        return [
            Prediction(output * self.labels.scale + self.labels.mean, {}) for output in outputs.squeeze(-1).tolist()
        ]

    def average(self, outputs: Sequence[Tensor], models: Sequence[Trained]) -> Tensor:
        labels = [model.labels for model in models if model.labels is not None]
        numbers = [
            output.double() * labels_of_run.scale + labels_of_run.mean
            for output, labels_of_run in zip(outputs, labels, strict=True)
        ]
        return ((torch.stack(numbers).mean(0) - self.labels.mean) / self.labels.scale).float()


class RegressionAccumulator:
    """Accumulates true and predicted numbers; metrics are in the unit of the labels."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._truth, self._predicted = list[np.ndarray](), list[np.ndarray]()

    def add(self, batch: Batch, outputs: Tensor) -> None:
        self._truth.append(batch.labels.cpu().numpy())
        self._predicted.append(outputs.squeeze(-1).cpu().numpy())

    def scores(self) -> dict[str, float]:
        # float64, since numbers may be far from 0 and close to each other.
        truth, predicted = (np.concatenate(parts).astype(np.float64) for parts in (self._truth, self._predicted))
        return number_scores(*(numbers * self.labels.scale + self.labels.mean for numbers in (truth, predicted)))

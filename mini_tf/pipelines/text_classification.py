"""Text classification: a class for a text or a pair of texts, with the probabilities of all classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from mini_tf.pipelines import ModelBundle, Prediction
from mini_tf.pipelines._class_pipeline import ClassPipeline
from mini_tf.pipelines._decision_rule import NO_LABEL
from mini_tf.pipelines._prediction import PredictionPipelineSettings
from mini_tf.scores import CLASS_METRICS
from mini_tf.scores.label_scores import class_scores


class Settings(PredictionPipelineSettings):
    METRICS = CLASS_METRICS
    MAIN_METRICS = ("accuracy",)
    SUMMARY_METRICS = ("f1_macro",)
    ENSEMBLES = True
    PREDICTS_CLASSES = True
    PLOTS = {"confusion": True, "calibration": False}

    def build(self, bundle: ModelBundle) -> "TextClassification":
        return TextClassification(bundle)


class TextClassification(ClassPipeline):
    def measure(self, truth: np.ndarray, predicted: np.ndarray, lengths: np.ndarray) -> dict[str, float]:
        return class_scores(truth, predicted, self.labels.names)

    def predictions(self, outputs: Tensor, examples: Sequence[Any]) -> list[Prediction]:
        names, log_probabilities = self.labels.names, self.rule.log_probabilities(outputs)
        labels = self.rule.decide(log_probabilities, np.ones(len(examples), np.int64))
        by_name = [dict(zip(names, row, strict=True)) for row in np.exp(log_probabilities).tolist()]
        top = self.most_probable(log_probabilities) if self.top else []
        more = [{"top": ranked} for ranked in top] or [{}] * len(examples)
        rows = zip(labels.tolist(), by_name, more, strict=True)
        return [Prediction(None if n == NO_LABEL else names[n], scores, more_of_row) for n, scores, more_of_row in rows]

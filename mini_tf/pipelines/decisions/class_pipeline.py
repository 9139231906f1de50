"""What text and token classification share: metrics and predictions by a decision rule."""

from functools import cached_property

import numpy as np

from mini_tf.pipelines._prediction import PredictionPipeline
from mini_tf.pipelines.decisions.rule import ClassAccumulator, DecisionRule
from mini_tf.scores.tag_scheme import TagScheme


class ClassPipeline(PredictionPipeline):
    """Predicts classes."""

    @property
    def scheme(self) -> TagScheme | None:
        """The rules of the sequence of classes; None: each target is decided by itself."""
        return None

    def measure(self, truth: np.ndarray, predicted: np.ndarray, lengths: np.ndarray) -> dict[str, float]:
        """Metrics from class ids (N,); lengths: targets of each example."""
        raise NotImplementedError

    @cached_property
    def rule(self) -> DecisionRule:
        return DecisionRule(self.scheme)

    def metric_accumulator(self) -> ClassAccumulator:
        return ClassAccumulator(self.rule, self.measure)

"""Logistic regression on TF-IDF features of words, pairs of words, and 2 to 5 characters within a word."""

from pydantic import Field

from mini_tf.baselines import BaselineData, BaselineSettings, Measured
from mini_tf.baselines._labelled_examples import (
    CLASS_METRICS,
    characters,
    class_ids,
    class_metrics,
    features,
    labelled_splits,
    logistic,
    words,
)

MOST_BYTES = 2_000_000
"""Less than for words alone: characters have ten times as many features."""


class Settings(BaselineSettings):
    METRICS = CLASS_METRICS
    REQUIRES = ("scikit-learn",)

    c: float = Field(10.0, gt=0)
    """Inverse strength of the L2 penalty."""

    def measure(self, data: BaselineData) -> Measured:
        train, val, labels, note = labelled_splits(data, MOST_BYTES)
        fitted, measured = features([words(), characters()], train, val)
        data.check()
        probabilities = logistic(fitted, class_ids(train, labels), measured, len(labels.names), self.c)
        metrics = class_metrics(class_ids(val, labels), probabilities, labels)
        return Measured("TF-IDF of words and characters + logistic regression", metrics, note)

"""Logistic regression on TF-IDF features of words and pairs of words."""

from pydantic import Field

from mini_tf.baselines import BaselineData, BaselineSettings, Measured
from mini_tf.baselines._labelled_examples import (
    CLASS_METRICS,
    class_ids,
    class_metrics,
    features,
    labelled_splits,
    logistic,
    words,
)

MOST_BYTES = 8_000_000


class Settings(BaselineSettings):
    METRICS = CLASS_METRICS
    REQUIRES = ("scikit-learn",)

    c: float = Field(10.0, gt=0)
    """Inverse strength of the L2 penalty."""

    def measure(self, data: BaselineData) -> Measured:
        train, val, labels, note = labelled_splits(data, MOST_BYTES)
        fitted, measured = features([words()], train, val)
        data.check()
        probabilities = logistic(fitted, class_ids(train, labels), measured, len(labels.names), self.c)
        message = "TF-IDF of words + logistic regression"
        return Measured(message, class_metrics(class_ids(val, labels), probabilities, labels), note)

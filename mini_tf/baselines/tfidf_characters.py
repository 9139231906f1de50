"""Logistic regression on TF-IDF features of words, pairs of words, and 2 to 5 characters within a word."""

from pydantic import Field

from mini_tf.baselines import BaselineData, BaselineSettings, Measured
from mini_tf.baselines._measures import CLASS_METRICS, characters, logistic_measured, words

MOST_BYTES = 2_000_000
"""Less than for words alone: characters have ten times as many features."""


class Settings(BaselineSettings):
    METRICS = CLASS_METRICS
    REQUIRES = ("scikit-learn",)

    c: float = Field(10.0, gt=0)
    """Inverse strength of the L2 penalty."""

    def measure(self, data: BaselineData) -> Measured:
        vectorizers = [words(), characters()]
        return logistic_measured("TF-IDF of words and characters", data, MOST_BYTES, vectorizers, self.c)

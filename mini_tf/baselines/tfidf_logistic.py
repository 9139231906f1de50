"""Logistic regression on TF-IDF features of words and pairs of words."""

from pydantic import Field

from mini_tf.baselines import BaselineData, BaselineSettings, Measured
from mini_tf.baselines._measures import CLASS_METRICS, logistic_measured, words

MOST_BYTES = 8_000_000


class Settings(BaselineSettings):
    METRICS = CLASS_METRICS
    REQUIRES = ("scikit-learn",)

    c: float = Field(10.0, gt=0)
    """Inverse strength of the L2 penalty."""

    def measure(self, data: BaselineData) -> Measured:
        return logistic_measured("TF-IDF of words", data, MOST_BYTES, [words()], self.c)

"""Ridge regression on TF-IDF features of words and pairs of words."""

from pydantic import Field

from mini_tf.baselines import BaselineData, BaselineSettings, Measured
from mini_tf.baselines._measures import (
    NUMBER_METRICS,
    features,
    labelled_splits,
    number_metrics,
    numbers,
    words,
)

MOST_BYTES = 8_000_000


class Settings(BaselineSettings):
    METRICS = NUMBER_METRICS
    REQUIRES = ("scikit-learn",)

    alpha: float = Field(1.0, gt=0)
    """Strength of the L2 penalty."""

    def measure(self, data: BaselineData) -> Measured:
        from sklearn.linear_model import Ridge

        train, val, labels, note = labelled_splits(data, MOST_BYTES)
        fitted, measured = features([words()], train, val)
        data.check()
        predicted = Ridge(alpha=self.alpha).fit(fitted, numbers(train)).predict(measured)
        return Measured("TF-IDF of words + ridge regression", number_metrics(numbers(val), predicted, labels), note)

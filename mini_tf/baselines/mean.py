"""The mean of the training data, for every text."""

import numpy as np

from mini_tf.baselines import BaselineData, BaselineSettings, Measured
from mini_tf.baselines._measures import NUMBER_METRICS, number_metrics, numbers


class Settings(BaselineSettings):
    METRICS = NUMBER_METRICS

    def measure(self, data: BaselineData) -> Measured:
        assert data.labels is not None
        truth = numbers(list(data.examples(data.val.store)))
        return Measured("the mean", number_metrics(truth, np.full(len(truth), data.labels.mean), data.labels))

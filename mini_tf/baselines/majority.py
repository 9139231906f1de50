"""The most frequent class of the training data, for every text; its loss is that of the class frequencies."""

import numpy as np

from mini_tf.baselines import BaselineData, BaselineSettings, Measured
from mini_tf.baselines._measures import CLASS_METRICS, class_ids, class_metrics


class Settings(BaselineSettings):
    METRICS = CLASS_METRICS

    def measure(self, data: BaselineData) -> Measured:
        assert data.labels is not None
        truth, counts = class_ids(list(data.examples(data.val.store)), data.labels), np.array(data.labels.counts)
        probabilities = np.tile(counts / counts.sum(), (len(truth), 1))
        return Measured("the most frequent class", class_metrics(truth, probabilities, data.labels))

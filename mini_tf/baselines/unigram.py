"""The frequency of each token in the training data: without any context."""

import numpy as np

from mini_tf.baselines import BaselineData, BaselineSettings, Measured
from mini_tf.baselines._measures import TOKEN_METRICS, TokenSums, training_ids, unigram


class Settings(BaselineSettings):
    METRICS = TOKEN_METRICS

    def measure(self, data: BaselineData) -> Measured:
        p, sums = unigram(training_ids(data.train), data.train.vocabulary), TokenSums()
        for batch in data.batches():
            labels = batch.labels.numpy()
            sums.add(np.log(p[labels]), labels == p.argmax())
        return sums.measured("token frequencies", data)

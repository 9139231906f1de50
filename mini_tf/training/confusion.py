"""Confusion matrix of an evaluation, computed along with its other metrics."""

import numpy as np
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.scores.classes import confusion
from mini_tf.training.evaluation import MetricAccumulator


class Confusion:
    """Wraps a metric accumulator and adds the confusion matrix `counts` (C, C), one row per true class."""

    def __init__(self, accumulator: MetricAccumulator, n_classes: int) -> None:
        self.accumulator, self.n_classes = accumulator, n_classes
        self.counts = np.zeros((n_classes, n_classes), np.int64)

    def add(self, batch: Batch, outputs: Tensor) -> None:
        self.accumulator.add(batch, outputs)
        if len(batch.labels):  # a row cut out of one long word has no target
            self.counts += confusion(batch.labels.cpu().numpy(), outputs.argmax(-1).cpu().numpy(), self.n_classes)

    def scores(self) -> dict[str, float]:
        return self.accumulator.scores()

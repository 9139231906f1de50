"""Which class is taken for which, counted beside whatever else is made of the outputs of an evaluation."""

import numpy as np
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.scores.classes import confusion
from mini_tf.training.evaluation import Judge


class Confusion:
    """Another judge, which also counts: `counts` (C, C), a row a true class."""

    def __init__(self, judge: Judge, n_classes: int) -> None:
        self.judge, self.n_classes = judge, n_classes
        self.counts = np.zeros((n_classes, n_classes), np.int64)

    def add(self, batch: Batch, answers: Tensor) -> None:
        self.judge.add(batch, answers)
        if len(batch.labels):  # a row of one endless word asks for nothing
            self.counts += confusion(batch.labels.cpu().numpy(), answers.argmax(-1).cpu().numpy(), self.n_classes)

    def scores(self) -> dict[str, float]:
        return self.judge.scores()

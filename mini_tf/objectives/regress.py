"""Regression: the number that belongs to a text, or to two texts.

What is learnt is the number less the mean of the training side, in units of its standard deviation; the loss, a mean square, is then
the share of the variance that is not explained: 1 = no better than the mean.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.labels import Labels
from mini_tf.data.tokenization.tokenizer import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.objectives._answering import Answering, PooledSettings, Task
from mini_tf.scores import OF_NUMBERS
from mini_tf.scores.numbers import number_scores

PART = "regress"


class Settings(PooledSettings):
    DATASET = "numbers"
    METRICS = OF_NUMBERS

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Regress":
        assert labels is not None
        return Regress(self, vocabulary, labels)


class Regress(Task):
    def __init__(self, settings: Settings, vocabulary: Vocabulary, labels: Labels) -> None:
        super().__init__(settings, 1, vocabulary)
        self.pool, self.labels = settings.pool, labels

    def prepare(self, rows: Rows) -> Batch:
        assert rows.row_labels is not None
        return self.ask(rows, torch.from_numpy(rows.row_labels[:, 0]), PART)

    def task(self, model: Model) -> nn.Module:
        return Answering(model, PART, _square, self.pool)

    def judge(self) -> "Numbers":
        return Numbers(self.labels)


def _square(answers: Tensor, labels: Tensor, training: bool) -> Tensor:
    return F.mse_loss(answers.squeeze(-1), labels, reduction="sum")


class Numbers:
    """The numbers that were given, beside those that are right, in their own unit."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._truth, self._given = list[np.ndarray](), list[np.ndarray]()

    def add(self, batch: Batch, answers: Tensor) -> None:
        self._truth.append(batch.labels.cpu().numpy())
        self._given.append(answers.squeeze(-1).cpu().numpy())

    def scores(self) -> dict[str, float]:
        # In doubles, since numbers may be far from 0 and near to each other.
        truth, given = (np.concatenate(side).astype(np.float64) for side in (self._truth, self._given))
        return number_scores(*(side * self.labels.scale + self.labels.mean for side in (truth, given)))

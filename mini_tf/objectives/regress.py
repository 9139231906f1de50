"""Regression: predict a number from a text or from a pair of texts.

Targets are standardized by the mean and standard deviation of the training data, so the loss, the mean squared error,
is the fraction of unexplained variance: 1 = no better than the mean.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.objectives._task import PooledObjective, PooledSettings, TaskLoss

PART = "regress"


class Settings(PooledSettings):
    ALIASES = ("regression",)
    DATASET, BASELINES = "numbers", ("mean", "ridge")
    PIPELINE, LOSS_UNIT = "regression", "unexplained variance"

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Regress":
        assert labels is not None
        return Regress(self, vocabulary, labels)


class Regress(PooledObjective):
    problem_type = "regression"

    def __init__(self, settings: Settings, vocabulary: Vocabulary, labels: Labels) -> None:
        super().__init__(settings, 1, vocabulary)
        self.labels = labels

    def prepare(self, rows: Rows) -> Batch:
        assert rows.row_labels is not None
        return self.make_batch(rows, torch.from_numpy(rows.row_labels[:, 0]), PART)

    def task(self, model: Model) -> nn.Module:
        return TaskLoss(model, PART, _square, self.pool, self.wide)


def _square(outputs: Tensor, labels: Tensor, training: bool) -> Tensor:
    return F.mse_loss(outputs.squeeze(-1), labels, reduction="sum")

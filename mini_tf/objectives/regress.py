"""Regression: a number for a text or a pair of texts.

The model predicts the standardized number (mean and standard deviation of the training split). The loss, a mean squared
error, is then the share of unexplained variance: 1 = no better than the mean.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.labels import Labels
from mini_tf.data.tokenization.tokenizer import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.objectives._answering import Answering, PooledSettings, Task

PART = "regress"


class Settings(PooledSettings):
    DATASET = "numbers"
    PIPELINE, TASK, LOSS_UNIT = "regression", True, "share of the variance"

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


def _square(outputs: Tensor, labels: Tensor, training: bool) -> Tensor:
    return F.mse_loss(outputs.squeeze(-1), labels, reduction="sum")

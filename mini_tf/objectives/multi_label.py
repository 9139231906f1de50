"""Several labels of a text or of a pair of texts: binary cross-entropy of each label by itself, their mean.

Thresholds for the largest F1 of each label: Lipton et al. 2014, arXiv:1402.1892.
"""

from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.objectives._named_classes import NamedLabels
from mini_tf.objectives._task import PooledObjective, PooledSettings, TaskLoss
from mini_tf.recipe.data import NonEmptyText
from mini_tf.recipe.kind_settings.objectives import Addition

PART = "multi_label"


class Settings(PooledSettings, NamedLabels):
    DATASET, PIPELINE = "label_sets", "multi_label_classification"
    BASELINES = ("tfidf_one_vs_rest",)

    separator: NonEmptyText = ","
    """Between the labels of a text in a table of csv or tsv; in jsonl and parquet they may be a list."""
    threshold: Annotated[float, Field(gt=0, lt=1)] | Literal["fit"] = "fit"
    """Probability from which on a label is predicted; fit: one per label, fitted on the validation data."""

    @property
    def additions(self) -> frozenset[Addition]:
        return super().additions | frozenset({"bias"} if self.threshold == "fit" else ())

    def dataset(self) -> Any:
        return super().dataset().model_copy(update={"separator": self.separator})

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "MultiLabel":
        assert labels is not None
        return MultiLabel(self, len(labels.names), vocabulary)


class MultiLabel(PooledObjective):
    problem_type = "multi_label_classification"

    def prepare(self, rows: Rows) -> Batch:
        assert rows.row_labels is not None
        return self.make_batch(rows, torch.from_numpy(rows.row_labels), PART)

    def task(self, model: Model) -> nn.Module:
        return TaskLoss(model, PART, label_set_loss, self.pool, self.wide)


def label_set_loss(outputs: Tensor, labels: Tensor, training: bool) -> Tensor:
    """outputs, labels (T, C): the mean over the labels, in nats, summed over the texts."""
    return F.binary_cross_entropy_with_logits(outputs, labels.to(outputs), reduction="none").mean(-1).sum()

"""Token classification: a tag for every word, predicted at its first token. Source: Devlin et al. 2018,
arXiv:1810.04805, section 5.3."""

from dataclasses import replace

import torch
from pydantic import Field
from torch import nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.labels import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.layers.ngram_features import WindowFeatures
from mini_tf.nn.layers.task_head import TaskHead
from mini_tf.nn.model import Model
from mini_tf.objectives._task import ClassSettings, TaskLoss, TaskObjective, WideSettings, class_loss

PART = "tag"


class WideTagSettings(WideSettings):
    """Settings of the linear model of n-grams around a token."""

    window: int = Field(2, ge=0, le=64)
    """Tokens before and after."""


class Settings(ClassSettings):
    DATASET, BASELINES = "tags", ("frequent_tag", "shape_tagger")
    PIPELINE, TASK = "token_classification", True

    wide: WideTagSettings | None = None
    """A linear model of hashed n-grams around a token, {order, window, rows, scale}, is added to the outputs."""

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Tag":
        assert labels is not None
        return Tag(self, vocabulary, labels)


class Tag(TaskObjective):
    def __init__(self, settings: Settings, vocabulary: Vocabulary, labels: Labels) -> None:
        super().__init__(settings, len(labels.names), vocabulary)
        self.labels, self.wide = labels, settings.wide
        self.loss = class_loss(settings.weights(labels), settings.label_smoothing)

    def head(self, d_model: int) -> TaskHead:
        wide = None
        if (given := self.wide) is not None:
            wide = WindowFeatures(self.vocabulary_size, given.order, given.rows, given.scale, self.n_outputs, given.window)
        return TaskHead(d_model, self.n_outputs, self.dropout_rate, wide, dense=self.dense, bias=self.head_bias)

    def prepare(self, rows: Rows) -> Batch:
        assert rows.labels is not None
        labels = torch.from_numpy(rows.labels).flatten()
        at = (~labels.isnan()).nonzero().squeeze(1)
        batch = self.make_batch(rows, labels[at].long(), PART, at)
        return batch if rows.examples is None else replace(batch, extras=batch.extras | {"examples": torch.from_numpy(rows.examples)})

    def task(self, model: Model) -> nn.Module:
        return TaskLoss(model, PART, self.loss)

"""Token classification: a tag for every word, predicted at its first token. Source: Devlin et al. 2018,
arXiv:1810.04805, section 5.3.
"""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.layers.head import TaskHead
from mini_tf.nn.layers.ngram_features import LinearFeatures, WideSettings, WindowFeatures
from mini_tf.nn.layers.word_characters import WordFeatures
from mini_tf.nn.model import Model
from mini_tf.objectives._named_classes import ClassSettings, class_loss
from mini_tf.objectives._task import TaskLoss, TaskObjective, keys_at

PART = "tag"


class WideTagSettings(WideSettings):
    """Settings of the linear model of n-grams around a word."""

    unit: Literal["token", "word"] = "token"
    """Of what n-grams and window are: tokens, or words, with features of their shapes, prefixes and suffixes, too."""
    window: int = Field(2, ge=0, le=64)
    """Tokens or words before and after."""
    affixes: int = Field(4, ge=0, le=16)
    """Characters in the longest prefix and suffix, for words."""

    def build(self, vocabulary_size: int, n_outputs: int) -> LinearFeatures:
        features = WordFeatures if self.unit == "word" else WindowFeatures
        return features(vocabulary_size, self.order, self.rows, self.scale, n_outputs, self.window)


class Settings(ClassSettings):
    ALIASES = ("ner", "pos", "tagging", "token_classification", "sequence_labeling")
    DATASET, BASELINES = "tags", ("frequent_tag", "shape_tagger")
    PIPELINE = "token_classification"

    wide: WideTagSettings | None = None
    """A linear model of hashed n-grams around a word, {unit, order, window, rows, scale}, is added to the outputs."""

    @property
    def features(self) -> WideSettings | None:
        return self.wide

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Tag":
        assert labels is not None
        return Tag(self, vocabulary, labels)


class Tag(TaskObjective):
    def __init__(self, settings: Settings, vocabulary: Vocabulary, labels: Labels) -> None:
        super().__init__(settings, len(labels.names), vocabulary)
        self.labels, self.wide = labels, settings.wide
        self.loss = class_loss(settings.weights(labels), settings.label_smoothing)

    def head(self, model: Model) -> TaskHead:
        wide = None if self.wide is None else self.wide.build(self.vocabulary_size, self.n_outputs)
        head = self.head_with(model, wide)
        if self.wide is not None and self.wide.unit == "word":
            nn.init.zeros_(head.linear.weight)  # words learn in few steps: no noise of a network that knows nothing yet
        return head

    def prepare(self, rows: Rows) -> Batch:
        assert rows.labels is not None
        labels = torch.from_numpy(rows.labels).flatten()
        at = (~labels.isnan()).nonzero().squeeze(1)
        batch = self.make_batch(rows, labels[at].long(), PART, at)
        if rows.examples is not None:
            batch.extras["examples"] = torch.from_numpy(rows.examples)
        if self.wide is not None and self.wide.unit == "word":
            is_token = np.ones_like(rows.ids, dtype=bool) if rows.segments is None else rows.segments != 0
            batch.extras["words"] = keys_at(rows.ids, is_token, at, self.texts, self.wide.affixes)
        return batch

    def task(self, model: Model) -> nn.Module:
        return TaskLoss(model, PART, self.loss, wide=self.wide)

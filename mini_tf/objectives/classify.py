"""Classification of a text or of a pair of texts, from one pooled vector per row.

Source: Devlin et al. 2018, arXiv:1810.04805, section 4.1 (first); Joulin et al. 2017, arXiv:1607.01759 (mean).
"""

import numpy as np
import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.layers.word_characters import WideTextSettings
from mini_tf.nn.model import Model
from mini_tf.objectives._distillation import Distillation, TeacherSettings
from mini_tf.objectives._named_classes import ClassSettings, class_loss
from mini_tf.objectives._task import PooledObjective, PooledSettings, TaskLoss

PART = "classify"


class WideClassSettings(WideTextSettings):
    """Settings of the linear model of n-grams of texts with classes."""

    class_ratios: bool = False
    """N-grams also count by how much more frequent they are in one class than in the others, as in naive Bayes."""

    @property
    def weighted_by_class(self) -> bool:
        return self.class_ratios


class Settings(PooledSettings, ClassSettings, TeacherSettings):
    ALIASES = ("classification", "sequence_classification", "text_classification", "sentiment")
    DATASET = "classes"
    PIPELINE = "text_classification"
    BASELINES = ("majority", "tfidf_logistic", "tfidf_characters")

    wide: WideClassSettings | None = None
    """A linear model of hashed n-grams, {order, characters, rows}, is added to the outputs: wide and deep learning."""

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Classify":
        assert labels is not None
        return Classify(self, vocabulary, labels)


class Classify(PooledObjective):
    settings: Settings
    problem_type = "single_label_classification"

    def __init__(self, settings: Settings, vocabulary: Vocabulary, labels: Labels) -> None:
        super().__init__(settings, len(labels.names), vocabulary)
        self.labels = labels
        self.loss = class_loss(settings.weights(labels), settings.label_smoothing)

    @property
    def classes_by_frequency(self) -> Tensor:
        return torch.tensor(self.labels.counts).argsort(descending=True, stable=True).argsort()

    def prepare(self, rows: Rows) -> Batch:
        assert rows.row_labels is not None
        return self.make_batch(rows, torch.from_numpy(rows.row_labels[:, 0].astype(np.int64)), PART)

    def task(self, model: Model) -> nn.Module:
        distillation = Distillation.of(self.settings, self.teacher, model)
        return TaskLoss(model, PART, self.loss, self.pool, self.wide, distillation)

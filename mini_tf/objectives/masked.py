"""Masked language modelling: some input tokens are replaced, and the model predicts the originals from both sides.

Of the selected positions 80 % become [MASK], 10 % a random token, 10 % stay; only these positions are targets. Source:
Devlin et al. 2018, arXiv:1810.04805, section 3.1.
"""

import numpy as np
import torch
from torch import nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.objectives import NATS_PER_TOKEN, Objective
from mini_tf.objectives._distillation import Distillation, TeacherSettings
from mini_tf.objectives._masking import Masking, MaskingSettings
from mini_tf.objectives._token_loss import TokenLoss, make_batch

PART = "masked"


class Settings(MaskingSettings, TeacherSettings):
    ALIASES = ("mlm", "masked_lm", "masked_language_modeling", "bert")
    SUPPORTS = frozenset({"bidirectional"})
    PIPELINE, BASELINES = "fill_mask", ("unigram", "neighbours")
    PREDICTS = frozenset({"tokens"})
    LOSS_UNIT, METRICS = NATS_PER_TOKEN, ("accuracy",)

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Masked":
        return Masked(self, Masking(self, vocabulary, "masked language modelling"))


class Masked(Objective):
    settings: Settings

    def __init__(self, settings: Settings, masking: Masking) -> None:
        super().__init__(settings)
        self.masking, self.needs_word_starts = masking, masking.needs_word_starts
        self.visible_targets = settings.replace[2]

    def prepare(self, rows: Rows) -> Batch:
        ids, is_target = rows.ids.copy(), np.zeros(rows.ids.shape, dtype=bool)
        for i, (selected, shown, _) in enumerate(self.masking.rows(rows)):
            is_target[i, selected] = True
            ids[i, selected] = shown
        return make_batch(
            rows, torch.from_numpy(ids).long(), torch.from_numpy(rows.ids).long(), torch.from_numpy(is_target), PART
        )

    def task(self, model: Model) -> nn.Module:
        return TokenLoss(model, PART, distillation=Distillation.of(self.settings, self.teacher, model))

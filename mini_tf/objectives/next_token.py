"""Causal language modelling: predict the next token. Source: Radford et al. 2018 (GPT), section 3.1."""

import torch
from torch import nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.objectives import NATS_PER_TOKEN, Objective
from mini_tf.objectives._distillation import Distillation, TeacherSettings
from mini_tf.objectives._token_loss import TokenLoss, make_batch

PART = "next_token"


class Settings(TeacherSettings):
    ALIASES = ("lm", "clm", "causal", "causal_lm", "language_modeling", "autoregressive", "gpt")
    SUPPORTS = frozenset({"causal", "streaming"})
    PIPELINE, BASELINES = "text_generation", ("ngram",)
    PREDICTS = frozenset({"tokens", "every_token"})
    LOSS_UNIT, METRICS = NATS_PER_TOKEN, ("accuracy",)

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "NextToken":
        return NextToken(self)


class NextToken(Objective):
    settings: Settings
    lookahead = 1

    def prepare(self, rows: Rows) -> Batch:
        ids = torch.from_numpy(rows.ids).long()
        is_target = torch.ones_like(ids[:, 1:], dtype=torch.bool)
        if rows.segments is not None:
            # The target of a document's last token is the separator that begins the next document.
            real = torch.from_numpy(rows.segments) != 0
            is_target = real[:, :-1] & real[:, 1:]
        return make_batch(rows, ids[:, :-1], ids[:, 1:], is_target, PART)

    def task(self, model: Model) -> nn.Module:
        return TokenLoss(model, PART, distillation=Distillation.of(self.settings, self.teacher, model))

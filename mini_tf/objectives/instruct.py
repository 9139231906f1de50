"""Instruction tuning: next-token prediction on chats, with a loss on the assistant's messages only.

Messages are divided by separators, a token that no text can contain: sep prompt sep response sep.
Source: Ouyang et al. 2022, arXiv:2203.02155, section 3.5 (supervised fine-tuning).
"""

from dataclasses import replace

import torch
from pydantic import Field
from torch import nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.objectives import NATS_PER_TOKEN, Objective, ObjectiveSettings
from mini_tf.objectives._token_loss import TokenLoss, make_batch

PART = "instruct"


class Settings(ObjectiveSettings):
    ALIASES = ("sft", "chat", "instruction_tuning")
    SUPPORTS = frozenset({"causal"})
    DATASET, BASELINES = "chats", ("lead_sentence", "copied_source", "ngram")
    PIPELINE = "chat"
    TOKENS = ("separator",)
    PREDICTS = frozenset({"tokens"})
    LOSS_UNIT, METRICS = NATS_PER_TOKEN, ("accuracy",)
    TRAINING_KEYS = frozenset({"label_smoothing"})

    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Label smoothing in training."""

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Instruct":
        return Instruct(self)


class Instruct(Objective):
    settings: Settings
    lookahead = 1

    def prepare(self, rows: Rows) -> Batch:
        assert rows.labels is not None
        ids, is_target = torch.from_numpy(rows.ids).long(), ~torch.from_numpy(rows.labels).isnan()
        # The separator that ends a shorter row is a target but not an input.
        inputs = rows if rows.segments is None else replace(rows, segments=rows.segments[:, 1:])
        return make_batch(inputs, ids[:, :-1], ids[:, 1:], is_target[:, 1:], PART)

    def task(self, model: Model) -> nn.Module:
        return TokenLoss(model, PART, self.settings.label_smoothing)

"""Sequence to sequence: predict each token of the target from the source and the target tokens before it.

The decoder input starts with the opening separator; the labels end with the closing one.
Source: Sutskever et al. 2014, arXiv:1409.3215; label smoothing: Szegedy et al. 2016, arXiv:1512.00567, section 7.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field
from torch import nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.objectives import NATS_PER_TOKEN, Objective, ObjectiveSettings
from mini_tf.objectives._token_loss import TokenLoss, make_batch, tokens_of
from mini_tf.system.errors import DataFault

PART = "seq2seq"


class Settings(ObjectiveSettings):
    ALIASES = ("translation", "translate", "summarization", "summarize", "encoder_decoder")
    SUPPORTS = frozenset({"causal", "source"})
    DATASET = "pairs"
    BASELINES = ("lead_sentence", "copied_source", "ngram")
    PIPELINE = "text2text_generation"
    TOKENS: ClassVar[tuple[str, ...]] = ("separator",)
    PREDICTS = frozenset({"tokens", "every_token"})
    LOSS_UNIT, METRICS = NATS_PER_TOKEN, ("accuracy",)
    TRAINING_KEYS = frozenset({"label_smoothing"})

    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Label smoothing in training; Vaswani et al. 2017 use 0.1."""

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Seq2Seq":
        if vocabulary.separator is None:
            raise DataFault("the tokenizer has no separator token, which ends a target sequence")
        return Seq2Seq(self)


class Seq2Seq(Objective):
    settings: Settings
    lookahead = 1

    def prepare(self, rows: Rows) -> Batch:
        assert rows.source is not None
        ids, inputs = torch.from_numpy(rows.ids).long(), rows
        is_target = torch.ones_like(ids[:, 1:], dtype=torch.bool)
        if rows.segments is not None:  # the separator that ends a shorter row is a target but not an input
            inputs = replace(rows, segments=rows.segments[:, 1:])
            is_target = torch.from_numpy(rows.segments)[:, 1:] != 0
        source, _ = tokens_of(torch.from_numpy(rows.source.ids).long(), rows.source.segments)
        return make_batch(inputs, ids[:, :-1], ids[:, 1:], is_target, PART, source)

    def task(self, model: Model) -> nn.Module:
        return TokenLoss(model, PART, self.settings.label_smoothing)

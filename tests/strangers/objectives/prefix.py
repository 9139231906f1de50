"""Prefix language model: the first tokens of each document are a prefix that sees itself as a whole; what follows it is
predicted.

Source: Raffel et al. 2020, arXiv:1910.10683, section 3.2.1.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field
from torch import nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.labels import Labels
from mini_tf.data.tokenization.tokenizer import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.objectives import Objective, ObjectiveSettings
from mini_tf.objectives._token_loss import TokenLoss, make_batch
from mini_tf.recipe.kind_settings import Direction

PART = "prefix"


class Settings(ObjectiveSettings):
    DIRECTIONS: ClassVar[frozenset[Direction]] = frozenset({"prefix"})
    PIPELINE = "text_generation"
    PREDICTS_TOKENS, TOKEN_LOSS, METRICS = True, PART, ("accuracy",)

    length: int = Field(4, ge=1)
    """Tokens of the prefix."""

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Prefix":
        return Prefix(self)


class Prefix(Objective):
    lookahead = 1

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.length = settings.length

    def prepare(self, rows: Rows) -> Batch:
        ids = torch.from_numpy(rows.ids).long()
        segments = torch.ones_like(ids) if rows.segments is None else torch.from_numpy(rows.segments).long()
        token_positions = TokenPositions.packed(segments[:, :-1])
        assert token_positions.positions is not None
        asked = (segments[:, :-1] != 0) & (segments[:, 1:] != 0) & (token_positions.positions >= self.length - 1)
        batch = make_batch(rows, ids[:, :-1], ids[:, 1:], asked, PART)
        return replace(
            batch,
            inputs=replace(
                batch.inputs, token_positions=replace(token_positions, orders=token_positions.positions.clamp(min=self.length - 1))
            ),
        )

    def task(self, model: Model) -> nn.Module:
        return TokenLoss(model, PART)

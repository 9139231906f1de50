"""Prefix language modelling: a decoder attends to the beginning of each document in both
directions, and predicts what follows it.

The tokens of the prefix attend to each other in both directions, so only those after it are targets. The length of the
prefix is drawn anew for every document of every row. Source: Raffel et al. 2020 (T5), arXiv:1910.10683, section 3.2.1.
"""

from dataclasses import replace

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.objectives import NATS_PER_TOKEN, Objective, ObjectiveSettings
from mini_tf.objectives._token_loss import TokenLoss, make_batch
from mini_tf.recipe.kinds import Share

PART = "prefix"


class Settings(ObjectiveSettings):
    SUPPORTS = frozenset({"prefix"})
    PIPELINE, BASELINES = "text_generation", ("ngram",)
    PREDICTS = frozenset({"tokens"})
    LOSS_UNIT, METRICS = NATS_PER_TOKEN, ("accuracy",)

    prefix_rate: tuple[Share, Share] = Field((0.0, 1.0))
    """Smallest and largest share of a document that is its prefix, drawn uniformly; at least one token, and not all."""

    @field_validator("prefix_rate")
    @classmethod
    def _ordered(cls, rates: tuple[float, float]) -> tuple[float, float]:
        if rates[0] > rates[1]:
            raise ValueError("the smallest share must not be above the largest")
        return rates

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Prefix":
        return Prefix(self)


class Prefix(Objective):
    settings: Settings
    lookahead = 1

    def prepare(self, rows: Rows) -> Batch:
        ids = torch.from_numpy(rows.ids).long()
        segments = np.ones_like(rows.ids) if rows.segments is None else rows.segments
        lengths = torch.from_numpy(np.stack([self._lengths(*row) for row in zip(segments, rows.keys, strict=True)]))
        own_segments = torch.from_numpy(segments[:, :-1]).long()
        token_positions = TokenPositions.packed(own_segments)
        assert token_positions.positions is not None
        positions = token_positions.positions
        follows = torch.from_numpy((segments[:, :-1] != 0) & (segments[:, 1:] != 0)) & (positions >= lengths - 1)
        batch = make_batch(rows, ids[:, :-1], ids[:, 1:], follows, PART)
        orders = replace(token_positions, orders=torch.maximum(positions, lengths - 1))
        return replace(batch, inputs=replace(batch.inputs, token_positions=orders))

    def task(self, model: Model) -> nn.Module:
        return TokenLoss(model, PART)

    def _lengths(self, segments: np.ndarray, key: np.uint64) -> np.ndarray:
        """For each input token (n - 1,) the prefix length of its document; segments (n,) of a row."""
        rng = np.random.Generator(np.random.Philox(key=int(key)))
        lengths = np.ones(len(segments) - 1, np.int64)
        for number in np.unique(segments[segments != 0]):
            index = np.flatnonzero(segments[:-1] == number)
            if not len(index):
                continue
            # The last input has a target too if a token follows, which may open the next document.
            n_inputs = len(index) - (segments[index[-1] + 1] == 0)
            low, high = (
                min(max(round(rate * (n_inputs + 1)), 1), max(n_inputs, 1)) for rate in self.settings.prefix_rate
            )
            lengths[index] = rng.integers(low, high + 1)
        return lengths

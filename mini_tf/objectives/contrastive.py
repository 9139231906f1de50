"""Contrastive learning of vectors of texts: each text is to be nearer to its positive than to the negatives.

The loss of an anchor is the cross-entropy of its positive under the cosine similarities, divided by a temperature, to
all positives and hard negatives of its row: in-batch negatives, but those of the row alone, so that a row is the unit
of training as elsewhere. It is log n for n equal similarities. False negatives are left out: what has the text of the
positive, of the anchor, or of another positive of the same anchor. A text without a positive is its own under
other dropout (SimCSE), which needs model.dropout_rate above 0.

Time: one forward pass, of each text by itself. Sources: Gao, Yao and Chen 2021, arXiv:2104.08821, equations 1, 4 and 5
(SimCSE, pairs and hard negatives); van den Oord et al. 2018, arXiv:1807.03748 (InfoNCE). Unlike theirs there is no
layer behind the pooling.
"""

from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.packing import Shape
from mini_tf.data.store import Store
from mini_tf.data.text_groups import ANCHOR, POSITIVE, SAME, TextGroups, text_keys, text_starts
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.layers.head import TOKEN_POOLS, NoHead, Pool, pooled, token_index
from mini_tf.nn.model import Model
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import LossSums, Objective, ObjectiveSettings
from mini_tf.objectives._task import pool_rules
from mini_tf.recipe.kind_settings import ModelSettings
from mini_tf.recipe.kinds import Rules, settings_of
from mini_tf.recipe.sections import Train
from mini_tf.scores.label_scores import contrast_of, numbered
from mini_tf.system.errors import RecipeFault

PART = "contrastive"


class Settings(ObjectiveSettings):
    ALIASES = ("simcse", "sentence_embeddings")
    SUPPORTS = frozenset({"bidirectional", "causal"})
    DATASET, PIPELINE, BASELINES = "text_pairs", "sentence_similarity", ("tfidf_cosine",)
    PREDICTS = frozenset({"rows"})
    TOKENS = ("separator",)
    LOSS_UNIT, HEAD = "nats per text", False

    pool: Literal["mean", "first", "last", "max"] = "mean"
    """Pooling of the hidden states of a text: mean or max over all, first or last token (separators)."""
    normalize: bool = True
    """Vectors that `minitf embed` writes have length 1; the loss compares their directions alone."""
    temperature: float = Field(0.05, gt=0, le=100)
    """What cosine similarities are divided by."""
    group: int | None = Field(None, ge=2, le=4096)
    """Examples of a row, at most, which are contrasted with each other; default: so many that most fit as a whole."""

    def dataset(self) -> Any:
        return settings_of("data.datasets", self.DATASET).model_validate({"group": self.group})

    @property
    def pooling(self) -> Pool:
        return self.pool

    @property
    def normalizes(self) -> bool:
        return self.normalize

    def rules_with(self, model: ModelSettings, train: Train) -> Rules:
        yield from pool_rules(self.pool, model)

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Contrastive":
        return Contrastive(self)


class Contrastive(Objective):
    settings: Settings

    def add_modules(self, model: Model) -> None:
        model.replace_head(NoHead())

    def fit(self, task: nn.Module, data: Store) -> None:
        """Sets nothing. RecipeFault if a training text is its own positive, and there is no dropout."""
        rates = [getattr(module, name, 0) for module in task.modules() for name in ("rate", "dropout_rate")]
        if not any(rates) and (TextGroups(data, Shape(0)).kinds < 2).any():
            message = "is 0, and without dropout a text without a positive is the same twice"
            raise RecipeFault(f"model.dropout_rate: {message}", hint="model.dropout_rate=0.1")

    def prepare(self, rows: Rows) -> Batch:
        """Each text of the rows becomes a row of the batch; labels (T, 2): its role, and its score or NaN.

        extras: anchors (N,) and candidates (C,), which texts they are; positives (N,), the candidate of each anchor;
        compared (N, C): the candidates that the loss of an anchor compares.
        """
        assert rows.labels is not None
        assert rows.segments is not None
        is_start = text_starts(rows)
        starts, row = np.flatnonzero(is_start), np.nonzero(is_start)[0]
        n_tokens = np.bincount(np.cumsum(is_start)[rows.segments.ravel() != 0])[1:]
        at = np.arange(int(n_tokens.max()))
        real = at < n_tokens[:, None]
        ids = np.where(real, rows.ids.ravel()[np.minimum(starts[:, None] + at, rows.ids.size - 1)], 0)
        roles, scores = (rows.labels.ravel()[starts + offset] for offset in (0, 1))
        token_positions = TokenPositions.packed(torch.from_numpy(real.astype(np.int64)))
        inputs = Tokens(torch.from_numpy(ids).long(), token_positions)
        is_anchor = roles == ANCHOR
        # Numbers of a row are its own: what other rows of the micro-batch have changes nothing.
        contrast = contrast_of(
            numbered(zip(row.tolist(), text_keys(inputs), strict=True)),
            is_anchor,
            (roles == POSITIVE) | (roles == SAME),
        )
        same_row = row[is_anchor][:, None] == row[~is_anchor]
        extras = {
            "anchors": np.flatnonzero(is_anchor),
            "candidates": np.flatnonzero(~is_anchor),
            "positives": contrast.positives,
            "compared": contrast.compared() & same_row,
        }
        labels, tokens = torch.from_numpy(np.stack([roles, scores], axis=1)), int(n_tokens.sum())
        counts = {PART: int(is_anchor.sum()), "tokens": tokens, "penalty": tokens}
        return Batch(inputs, labels, extras={k: torch.from_numpy(v) for k, v in extras.items()}, counts=counts)

    def task(self, model: Model) -> nn.Module:
        return ContrastiveLoss(model, self.settings)


class ContrastiveLoss(nn.Module):
    """The loss of the anchors of a batch. Its outputs in evaluation are the vectors of all texts, of length 1."""

    def __init__(self, model: Model, settings: Settings) -> None:
        super().__init__()
        self.model, self.pool, self.temperature = model, settings.pool, settings.temperature
        self.normalize = settings.normalize

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        pooled_states, penalty = self._pooled(batch.inputs)
        vectors, extras = F.normalize(pooled_states.float(), dim=-1), batch.extras  # (T, D)
        with torch.autocast(vectors.device.type, enabled=False):  # a small temperature magnifies rounding
            cosines = vectors[extras["anchors"]] @ vectors[extras["candidates"]].T  # (N, C)
        logits = (cosines / self.temperature).masked_fill(~extras["compared"], -torch.inf)
        parts = {PART: F.cross_entropy(logits, extras["positives"], reduction="sum")}
        if penalty is not None:
            parts["penalty"] = penalty
        return LossSums(parts, {}, None, None if self.training else vectors)

    def predict(self, batch: Batch) -> Tensor:
        """(B, D): the vectors of rows of one text each, as `minitf embed` writes them."""
        vectors, _ = self._pooled(batch.inputs)
        return F.normalize(vectors, dim=-1) if self.normalize else vectors

    def _pooled(self, inputs: Tokens) -> tuple[Tensor, Tensor | None]:
        """The pooled hidden states (B, D), and the penalty of the model."""
        at = token_index(self.pool, inputs) if self.pool in TOKEN_POOLS else None
        mixed = self.model(inputs, None, at, None)
        return mixed.y if at is not None else pooled(self.pool, mixed.y, inputs), mixed.penalty

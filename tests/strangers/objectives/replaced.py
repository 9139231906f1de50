"""Replaced-token detection: a generator fills in masked tokens, and the model tells which tokens are not the text's
own.

Source: Clark et al. 2020 (ELECTRA), arXiv:2003.10555, section 2. A token that was sampled right counts as the text's
own.
"""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.layers.head import TaskHead
from mini_tf.nn.model import Model, ModelSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import LossSums, Objective, ObjectiveSettings
from mini_tf.recipe.kinds import settings_of


class Settings(ObjectiveSettings):
    SUPPORTS = frozenset({"bidirectional"})
    TOKENS = ("mask",)
    METRICS = ("accuracy", "recall", "loss.generator", "loss.replaced")

    mask_rate: float = Field(0.25, gt=0, lt=1)
    """Share of a row's tokens that the generator replaces; at least one."""
    generator_width: int = Field(8, ge=1)
    """d_model of the generator."""

    @property
    def generator(self) -> ModelSettings:
        settings: ModelSettings = settings_of("models", "encoder")(d_model=self.generator_width, n_layers=1, n_heads=1)  # type: ignore[assignment]
        return settings

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Replaced":
        return Replaced(self, vocabulary)


class Replaced(Objective):
    weights = {"replaced": 50.0}

    def __init__(self, settings: Settings, vocabulary: Vocabulary) -> None:
        super().__init__(settings)
        self.mask_rate, self.generator, self.vocabulary = settings.mask_rate, settings.generator, vocabulary
        self.special = np.array(sorted(vocabulary.special_ids))

    def add_modules(self, model: Model) -> None:
        model.replace_head(TaskHead(model.d_model, 1, 0.0))

    def prepare(self, rows: Rows) -> Batch:
        real = np.ones(rows.ids.shape, bool) if rows.segments is None else rows.segments != 0
        masked, uniform = np.zeros(rows.ids.shape, bool), np.zeros(rows.ids.shape)
        for i, key in enumerate(rows.keys):
            draw = np.random.Generator(np.random.Philox(key=int(key)))
            free = np.flatnonzero(real[i] & ~np.isin(rows.ids[i], self.special))
            masked[i, draw.permutation(free)[: max(1, round(self.mask_rate * len(free)))]] = True
            uniform[i] = draw.random(len(uniform[i]))
        ids, at = torch.from_numpy(rows.ids).long(), torch.from_numpy(masked).flatten().nonzero().squeeze(1)
        inputs = ids.masked_fill(torch.from_numpy(masked), self.vocabulary.mask or 0)
        token_positions = (
            None if rows.segments is None else TokenPositions.packed(torch.from_numpy(rows.segments).long())
        )
        draws = {
            "uniform": torch.from_numpy(uniform).flatten()[at],
            "real": torch.from_numpy(real).flatten().nonzero().squeeze(1),
        }
        counts = {
            "generator": len(at),
            "replaced": int(real.sum()),
            "tokens": int(real.sum()),
            "penalty": int(real.sum()),
        }
        return Batch(Tokens(inputs, token_positions), ids.flatten()[at], at, extras=draws, counts=counts)

    def task(self, model: Model) -> nn.Module:
        return Detection(model, self.generator.build(self.vocabulary.size, model.context))


class Detection(nn.Module):
    def __init__(self, model: Model, generator: Model) -> None:
        super().__init__()
        self.model, self.generator = model, generator

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        proposed = self.generator(batch.inputs, at=batch.target_positions)
        scores = self.generator.logits(proposed.y).float()
        ids, truth = self._replaced(batch, scores)
        real = batch.extras["real"]
        mixed = self.model(replace(batch.inputs, ids=ids), at=real)
        found = self.model.logits(mixed.y).float().squeeze(-1)
        fake = truth.flatten()[real]
        parts = {
            "generator": F.cross_entropy(scores, batch.labels, reduction="sum"),
            "replaced": F.binary_cross_entropy_with_logits(found, fake.float(), reduction="sum"),
        }
        if penalties := [penalty for penalty in (proposed.penalty, mixed.penalty) if penalty is not None]:
            parts["penalty"] = torch.stack(penalties).sum()
        right = (found > 0) == fake
        return LossSums(
            parts, {"accuracy": (right.sum(), len(fake)), "recall": ((right & fake).sum(), fake.sum())}, None
        )

    @torch.no_grad()
    def _replaced(self, batch: Batch, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The text with sampled tokens where it was masked, and where it is another one for that."""
        assert batch.target_positions is not None
        below = scores.double().softmax(-1).cumsum(-1)
        sampled = (below < batch.extras["uniform"][:, None] * below[:, -1:]).sum(-1)
        original, corrupted = (
            batch.inputs.ids.flatten().index_copy(0, batch.target_positions, ids) for ids in (batch.labels, sampled)
        )
        return corrupted.view_as(batch.inputs.ids), (corrupted != original).view_as(batch.inputs.ids)

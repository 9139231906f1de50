"""Continuous bag of words (CBOW): every token is predicted from its context, which does not contain the token itself.

The model is an encoder of one layer without a path from a token to its own prediction. CBOW is the one with uniform
weights in a window and everything else switched off: no projections, residual, norm, feed-forward layer or positions.
The loss is the cross-entropy over the vocabulary or, with `negatives`, that of telling the token from random ones.
Unlike word2vec's code, whose update of the input vectors lacks 1 / (number of context tokens), this is the gradient.
Source: Mikolov et al. 2013, arXiv:1301.3781 and arXiv:1310.4546; the update: Irsoy et al. 2020, arXiv:2012.15332.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int
from pydantic import Field
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.store import Store
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.nn.state import State
from mini_tf.objectives import NATS_PER_TOKEN, LossSums, Objective, ObjectiveSettings, by_settings
from mini_tf.objectives._token_loss import TokenLoss, make_batch
from mini_tf.recipe.kind_settings import ModelSettings
from mini_tf.recipe.kinds import Rule, Rules
from mini_tf.recipe.sections import Train

PART = "cbow"
BITS = 52
"""Random numbers of negative samples are integers of so many bits, so that the draw is exact on every device."""
POWER = 0.75
"""Negative samples are drawn in proportion to this power of their counts (arXiv:1310.4546, section 2.2)."""


class Settings(ObjectiveSettings):
    SUPPORTS = frozenset({"bidirectional"})
    PIPELINE = "fill_mask"
    TOKENS: ClassVar[tuple[str, ...]] = ("mask",)
    PREDICTS, METRICS = frozenset({"tokens"}), ("accuracy",)

    negatives: int = Field(0, ge=0, le=1024)
    """Negative samples per token, drawn in proportion to count^0.75; 0: cross-entropy over the whole vocabulary."""

    @by_settings
    def LOSS_UNIT(self) -> str:
        return f"nats, {self.negatives} negative samples, per token" if self.negatives else NATS_PER_TOKEN

    @by_settings
    def BASELINES(self) -> tuple[str, ...]:
        return () if self.negatives else ("unigram", "neighbours")  # which have no loss of negative samples

    def rules_with(self, model: ModelSettings, train: Train) -> Rules:
        if self.direction(model) and (paths := list(_paths(model))):
            message = (
                f"cbow predicts a token from its context, but the model can copy the token itself: {'; '.join(paths)}"
            )
            yield Rule("objective", message, ("model.attention", "model.n_layers", "model.residual", "model.ngrams"))

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "CBOW":
        return CBOW(self, vocabulary)


def _paths(model: Any) -> Iterator[str]:
    """The paths from a token to its own prediction, each with what removes it."""
    stacks = model.stacks().values()
    if (layers := sum(stack.n_layers for stack in stacks)) > 1:
        yield f"{layers} layers return it by its neighbors (use n_layers 1)"
    if any(stack.residual for stack in stacks):
        yield "the residual connection carries it (use residual: false)"
    for word in dict.fromkeys(
        mixer.kind for stack in stacks for mixer in stack.attention if "context_only" not in mixer.supports
    ):
        yield f"{word} attention uses it (use {{kind: window, attends_self: false, scale: 0}})"
    if model.ngrams:
        yield "n-grams of its neighbors contain it (use ngrams: [])"


class CBOW(Objective):
    def __init__(self, settings: Settings, vocabulary: Vocabulary) -> None:
        super().__init__(settings)
        self.negatives, self.special = settings.negatives, np.array(sorted(vocabulary.special_ids))
        self.vocabulary_size = vocabulary.size

    def prepare(self, rows: Rows) -> Batch:
        """Targets are all tokens except special ones and padding; draws of negative samples are in `extras`."""
        ids, is_target = torch.from_numpy(rows.ids).long(), ~np.isin(rows.ids, self.special)
        if rows.segments is not None:
            is_target &= rows.segments != 0
        batch = make_batch(rows, ids, ids, torch.from_numpy(is_target), PART)
        if self.negatives:
            generators = [np.random.Generator(np.random.Philox(key=int(key))) for key in rows.keys]
            draws = np.stack(
                [generator.integers(0, 2**BITS, (rows.ids.shape[1], self.negatives)) for generator in generators]
            )
            batch.extras["draws"] = torch.from_numpy(draws[is_target])
        return batch

    def task(self, model: Model) -> nn.Module:
        return NegativeSampling(model, self.vocabulary_size) if self.negatives else TokenLoss(model, PART)

    def fit(self, task: nn.Module, data: Store) -> None:
        """Count the tokens of the training data, for negative samples."""
        if self.negatives:
            counts = data.token_counts()
            counts[self.special] = 0
            task.get_submodule("sampler").fit(counts)  # type: ignore[operator]


class NegativeSampling(nn.Module):
    """-log sigmoid(score of the target) - sum of log sigmoid(-score of a negative sample), summed over the targets.

    A negative sample that is the target itself is skipped, as in word2vec's code.
    """

    def __init__(self, model: Model, vocabulary_size: int) -> None:
        super().__init__()
        self.model, self.sampler = model, UnigramSampler(vocabulary_size)

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        mixed = self.model(batch.inputs, None, batch.target_positions, state)
        hidden = mixed.y if batch.target_positions is not None else mixed.y.flatten(0, 1)
        negatives = self.sampler(batch.extras["draws"])
        scores = self.model.logits(hidden, torch.cat([batch.labels[:, None], negatives], dim=1))
        scores = scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores
        kept = negatives != batch.labels[:, None]
        parts = {PART: -F.logsigmoid(scores[:, 0]).sum() - (F.logsigmoid(-scores[:, 1:]) * kept).sum()}
        metrics: dict[str, tuple[Tensor, Tensor | int]] = {}
        if not self.training:
            metrics["accuracy"] = ((self.model.logits(hidden).argmax(-1) == batch.labels).sum(), len(batch.labels))
        if mixed.penalty is not None:
            parts["penalty"] = mixed.penalty
        return LossSums(parts, metrics, mixed.state)


class UnigramSampler(nn.Module):
    """Token ids in proportion to counts^0.75, from uniform integers below 2^BITS.

    The buffer, the cumulative distribution as integers, is saved in checkpoints: a trained model is evaluated without
    its training data.
    """

    unigram: Tensor

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        self.register_buffer("unigram", torch.zeros(vocabulary_size, dtype=torch.long))
        self.fit(np.ones(vocabulary_size, np.int64))

    def fit(self, counts: Int[np.ndarray, " V"]) -> None:
        """Set the distribution; a token with count 0 is never drawn."""
        cumulative = np.cumsum(counts.astype(np.float64) ** POWER)
        self.unigram.copy_(torch.from_numpy(np.round(cumulative / max(cumulative[-1], 1) * 2**BITS).astype(np.int64)))

    def forward(self, draws: Int[Tensor, "T K"]) -> Int[Tensor, "T K"]:
        return torch.searchsorted(self.unigram, draws, right=True).clamp(max=len(self.unigram) - 1)

"""GPT-BERT's hybrid of causal and masked language modelling: one decoder is trained for both.

A row is either causal, with the next token as the target at every position, or masked: its tokens attend to each other
in both directions, and a masked token is predicted at the position before it, as a next token is. So one output serves
both. The loss is the mean of the targets of causal rows, weighted by `causal_rate`, and that of masked rows by the
rest. An evaluation reads every row in both ways. Source: Charpentier and Samuel 2024, "GPT or BERT: why not both?",
arXiv:2410.24159, section 2; their rates of causal rows are 1/16 to 1/2.
"""

from dataclasses import replace

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.model import Model
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.objectives import NATS_PER_TOKEN, Objective
from mini_tf.objectives._masking import Masking, MaskingSettings
from mini_tf.objectives._token_loss import Metrics, TokenLoss, make_batch, with_ignored
from mini_tf.recipe.kind_settings import ModelSettings
from mini_tf.recipe.kinds import Rule, Rules
from mini_tf.recipe.sections import Train

CAUSAL, MASKED = "next_token", "masked"
ACCURACIES = {CAUSAL: "accuracy", MASKED: "masked_accuracy"}


class Settings(MaskingSettings):
    SUPPORTS, CAUSAL_PROMPTS, ALSO_MODEL = frozenset({"prefix"}), True, "encoder"
    PIPELINE = "generation_or_filling"
    PREDICTS = frozenset({"tokens", "every_token"})
    LOSS_UNIT = NATS_PER_TOKEN
    METRICS = (*ACCURACIES.values(), f"loss.{CAUSAL}", f"loss.{MASKED}")

    causal_rate: float = Field(0.5, gt=0, lt=1)
    """Share of the rows that are causal, and weight of their loss; the other rows are masked."""
    mask_rate: float = Field(0.3, gt=0, lt=1)
    """Share of a masked row's tokens that are selected as targets at the beginning; at least one per row."""
    final_mask_rate: float | None = Field(0.15, gt=0, lt=1)
    """mask_rate changes linearly to this share at the end of training, which evaluation uses, too; null: constant."""

    def rules_with(self, model: ModelSettings, train: Train) -> Rules:
        yield from super().rules_with(model, train)
        if train.context < 2:
            yield Rule("train.context", "1 token has none before it at which it is predicted; use at least 2", ())

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Hybrid":
        return Hybrid(self, Masking(self, vocabulary, "masked language modelling"))


class Hybrid(Objective):
    lookahead, token_parts = 1, 2

    def __init__(self, settings: Settings, masking: Masking) -> None:
        super().__init__(settings)
        self.masking, self.needs_word_starts = masking, masking.needs_word_starts
        self.visible_targets = settings.replace[2]
        self.causal_rate = settings.causal_rate
        self.weights = {CAUSAL: settings.causal_rate, MASKED: 1 - settings.causal_rate}

    def prepare(self, rows: Rows) -> Batch:
        # Another counter than that of the masking, whose draws must not depend on this one.
        generators = (np.random.Generator(np.random.Philox(key=int(key), counter=[0, 0, 0, 1])) for key in rows.keys)
        return self._batch(rows, np.array([generator.random() < self.causal_rate for generator in generators], bool))

    def prepare_evaluation(self, rows: Rows) -> Batch:
        return self._batch(rows.select(np.repeat(np.arange(len(rows)), 2)), np.tile([True, False], len(rows)))

    def task(self, model: Model) -> nn.Module:
        return HybridLoss(model, CAUSAL)

    def _batch(self, rows: Rows, is_causal: np.ndarray) -> Batch:
        """is_causal (B,): the rows that are causal; the others are masked."""
        ids, real = rows.ids.copy(), np.ones(rows.ids.shape, bool) if rows.segments is None else rows.segments != 0
        is_target = real[:, :-1] & real[:, 1:] & is_causal[:, None]
        masked = np.flatnonzero(~is_causal)
        for row, (selected, shown, _) in zip(masked, self.masking.rows(_after_first(rows.select(masked))), strict=True):
            is_target[row, selected] = True
            ids[row, selected + 1] = shown
        inputs, labels = (torch.from_numpy(array).long() for array in (ids[:, :-1], rows.ids[:, 1:]))
        batch = make_batch(rows, inputs, labels, torch.from_numpy(is_target), CAUSAL)
        causal = torch.from_numpy(is_causal)
        kind_of_target = causal.repeat_interleave(torch.from_numpy(is_target.sum(1)))
        extras = {CAUSAL: kind_of_target.nonzero().squeeze(1), MASKED: (~kind_of_target).nonzero().squeeze(1)}
        positions = batch.inputs.token_positions or TokenPositions(inputs.shape[1])
        in_order = positions.all_positions(inputs.device).expand(inputs.shape)
        positions = replace(positions, orders=torch.where(causal[:, None], in_order, inputs.shape[1]))
        inputs_in_order = replace(batch.inputs, token_positions=positions)
        counts = batch.counts | {part: len(index) for part, index in extras.items()}
        return replace(batch, inputs=inputs_in_order, extras=extras, counts=counts)


class HybridLoss(TokenLoss):
    """The losses of causal and of masked rows, each a part. `Batch.extras` has the indices of the targets of each."""

    def loss(self, targets: ForwardOutput, batch: Batch) -> tuple[dict[str, Tensor], Metrics]:
        parts: dict[str, Tensor] = {}
        metrics: Metrics = {}  # `Metrics()` cannot be compiled
        for part, accuracy in ACCURACIES.items():
            index = batch.extras[part]
            of_part, labels = targets.each(lambda tensor: tensor[index]), batch.labels[index]  # noqa: B023
            if self.training:
                parts[part] = self.model.cross_entropy(of_part.y, labels, copies=of_part.copies)
            else:
                parts[part], n_correct = self.evaluate(of_part, labels)
                metrics[accuracy] = (n_correct, len(labels))
        return parts, metrics

    def pad_targets(self, batch: Batch, parts: int) -> Batch:
        """Each part has a multiple of 1 / parts of the positions as targets, if there are positions without target."""
        at, n, n_targets = batch.target_positions, batch.inputs.ids.numel(), len(batch.labels)
        multiple = -(-n // parts)
        missing = {part: -len(index) % multiple for part, index in batch.extras.items()}
        if at is None or (n_ignored := sum(missing.values())) > n - n_targets:
            return batch
        ignored = torch.arange(n_targets, n_targets + n_ignored).split([*missing.values()])
        of_parts = zip(batch.extras.items(), ignored, strict=True)
        extras = {part: torch.cat([index, more]) for (part, index), more in of_parts}
        return replace(with_ignored(batch, at, n_ignored), extras=extras)


def _after_first(rows: Rows) -> Rows:
    """Without the first token and the lookahead: the tokens that can be masked, as inputs with a token before them.

    The first token of a document is as padding, since no token of it is before.
    """
    ids, segments = rows.ids[:, 1:-1], rows.segments
    if segments is not None:
        segments = np.where(segments[:, 1:-1] == segments[:, :-2], segments[:, 1:-1], 0)
    starts = None if rows.word_starts is None else rows.word_starts[:, 1:-1]
    return replace(rows, ids=ids, segments=segments, word_starts=starts)

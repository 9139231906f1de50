"""Token prediction: cross-entropy over the vocabulary at the target positions of a batch."""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mini_tf.data.batch import Batch, Rows
from mini_tf.nn.layers.cross_entropy import IGNORED, chunks_on
from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.model import Model
from mini_tf.nn.model_stack import mixer_metrics
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import LossSums, Task
from mini_tf.objectives._distillation import Distillation

Metrics = dict[str, tuple[Tensor, Tensor | int]]


class TokenLoss(Task):
    """Cross-entropy in nats, summed over the targets. Logits are computed at target positions only.

    part: name of the loss in `LossSums.parts`. label_smoothing, distillation: applied in training only; one of them.
    """

    def __init__(
        self, model: Model, part: str, label_smoothing: float = 0.0, distillation: Distillation | None = None
    ) -> None:
        super().__init__()
        self.model, self.part, self.label_smoothing, self.distillation = model, part, label_smoothing, distillation

    def start(self, rows: int) -> State:
        """The initial state of a stream of `rows` rows."""
        return self.model.start(rows)

    def carry(self, state: State) -> State:
        """What is kept of the state for the next rows of the stream."""
        return self.model.carry(state)

    def pad_targets(self, batch: Batch, parts: int) -> Batch:
        return pad_targets(batch, parts)

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        mixed = self.model(batch.inputs, batch.source, batch.target_positions, state)
        targets = mixed if batch.target_positions is not None else mixed.each(lambda part: part.flatten(0, 1))
        parts, metrics = self.loss(targets, batch)
        if mixed.penalty is not None:
            parts["penalty"] = mixed.penalty
        return LossSums(parts, metrics | mixer_metrics(self.model.stacks(), mixed.state), mixed.state)

    def loss(self, targets: ForwardOutput, batch: Batch) -> tuple[dict[str, Tensor], Metrics]:
        """The parts of the loss, without the penalty, and the metrics."""
        if self.training and self.distillation is not None:
            return {self.part: self.distillation.of_tokens(self.model, targets.y, batch)}, {}
        if self.training:
            loss = self.model.cross_entropy(targets.y, batch.labels, self.label_smoothing, targets.copies)
            return {self.part: loss}, {}
        loss, n_correct = self.evaluate(targets, batch.labels)
        return {self.part: loss}, {"accuracy": (n_correct, len(batch.labels))}

    def evaluate(self, targets: ForwardOutput, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of -log p(label), and the number of labels that have the largest p; in chunks, as in training."""
        vocabulary_size = self.model.head.linear.out_features  # type: ignore[union-attr]
        loss, n_correct = torch.zeros((), device=labels.device), torch.zeros((), dtype=torch.long, device=labels.device)
        for part in chunks_on(labels.device.type, len(labels), vocabulary_size):  # type: ignore[arg-type]
            chunk = targets.each(lambda tensor: tensor[part])  # noqa: B023
            logits = self.model.logits(chunk.y, copies=chunk.copies)
            if logits.dtype in (torch.bfloat16, torch.float16):
                logits = logits.float()  # log-sum-exp is too inexact in half precision
            loss = loss + F.cross_entropy(logits, labels[part], reduction="sum")
            n_correct = n_correct + (logits.argmax(-1) == labels[part]).sum()
        return loss, n_correct


def make_batch(
    rows: Rows, ids: Tensor, labels: Tensor, is_target: Tensor, part: str, source: Tokens | None = None
) -> Batch:
    """A batch of inputs `ids` (B, L) whose targets are `labels` (B, L) where `is_target` (B, L) is True.

    rows: gives the segments of the inputs. part: name of the loss, for `Batch.counts`.
    """
    inputs, tokens = tokens_of(ids, None if rows.segments is None else rows.segments[:, : ids.shape[1]])
    at = None if bool(is_target.all()) else is_target.flatten().nonzero().squeeze(1)
    targets = labels.flatten() if at is None else labels.flatten()[at]
    return Batch(inputs, targets, at, source, counts={part: len(targets), "tokens": tokens, "penalty": tokens})


def tokens_of(ids: Tensor, segments: np.ndarray | None) -> tuple[Tokens, int]:
    """`ids` (B, L) with the positions of their documents, and how many are no padding. segments: as in `Rows`."""
    if segments is None:
        return Tokens(ids), ids.numel()
    return Tokens(ids, TokenPositions.packed(torch.from_numpy(segments).long())), int((segments != 0).sum())


def pad_targets(batch: Batch, parts: int) -> Batch:
    """`Task.pad_targets` for labels (T,). The ignored targets are the last ones, each at a position of its own that has
    no target, as a model may write to the positions that are chosen.
    """
    at, n = batch.target_positions, batch.inputs.ids.numel()
    if at is None:
        return batch
    multiple = -(-n // parts)
    return with_ignored(batch, at, min(n, max(1, -(-len(at) // multiple)) * multiple) - len(at))


def with_ignored(batch: Batch, at: Tensor, n: int) -> Batch:
    """The batch with `n` more targets, which are ignored, behind those `at` their flat positions (T,)."""
    others = torch.ones(batch.inputs.ids.numel(), dtype=torch.bool).index_fill(0, at, False).nonzero().squeeze(1)
    labels = F.pad(batch.labels, (0, n), value=IGNORED)
    return replace(batch, target_positions=torch.cat([at, others[:n]]), labels=labels)

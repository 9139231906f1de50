"""Prediction of tokens: cross-entropy over the vocabulary at the target positions of a batch."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.nn.model import Model
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import Sums


class Prediction(nn.Module):
    """Cross-entropy in nats, summed over the targets; hidden states and logits are computed at targets only.

    label_smoothing: share of each target's weight that is spread over the vocabulary, in training only.
    """

    def __init__(self, model: Model, part: str, label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.model, self.part, self.label_smoothing = model, part, label_smoothing

    def start(self, rows: int) -> State:
        """The empty recurrent state for a number of rows."""
        return self.model.start(rows)

    def trim(self, state: State) -> State:
        """The recurrent state for the next rows of a stream."""
        return self.model.trim(state)

    def forward(self, batch: Batch, state: State | None = None) -> Sums:
        mixed = self.model(batch.inputs, batch.source, batch.at, state)
        hidden = mixed.y if batch.at is not None else mixed.y.flatten(0, 1)
        metrics: dict[str, tuple[Tensor, Tensor | int]] = {}
        if self.training:
            parts = {self.part: self.model.cross_entropy(hidden, batch.labels, self.label_smoothing)}
        else:
            scores = self.model.logits(hidden)
            if scores.dtype in (torch.bfloat16, torch.float16):
                scores = scores.float()  # a sum of exponentials loses too much in half precision
            parts = {self.part: F.cross_entropy(scores, batch.labels, reduction="sum")}
            metrics["accuracy"] = ((scores.argmax(-1) == batch.labels).sum(), len(batch.labels))
        if mixed.penalty is not None:
            parts["penalty"] = mixed.penalty
        return Sums(parts, metrics, mixed.state)


def ask(rows: Rows, ids: Tensor, labels: Tensor, asked: Tensor, part: str, source: Tokens | None = None) -> Batch:
    """A batch with targets `labels` (B, L) where `asked` (B, L) is True, for inputs `ids` (B, L) and an optional
    source.
    """
    length = ids.shape[1]
    segments = None if rows.segments is None else torch.from_numpy(rows.segments[:, :length]).long()
    everywhere = bool(asked.all())
    at = None if everywhere else asked.flatten().nonzero().squeeze(1)
    chosen = labels.flatten() if at is None else labels.flatten()[at]
    tokens = ids.numel() if segments is None else int((segments != 0).sum())
    token_positions = None if segments is None else TokenPositions.packed(segments)
    return Batch(Tokens(ids, token_positions), chosen, at, source, counts={part: len(chosen), "tokens": tokens, "penalty": tokens})

"""Rows of token ids, and the batches that an objective makes of them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mini_tf.nn.tokens import Tokens


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows chosen by the training plan or by evaluation, without targets.

    ids (B, n) int64; n is the context plus the objective's `lookahead`. segments (B, n): 0 is padding, equal numbers
    are one document; None if all rows are whole windows of one stream. keys (B,): a 64-bit seed per row, of (seed,
    step, row) in training and of (seed, example) in evaluation. word_starts (B, n): True where a token begins a word;
    None unless the objective asks for it. source: of an encoder-decoder, the source rows (B, m). labels (B, n) float32:
    token labels, NaN = none. row_labels (B, k) float32: labels of rows. examples (B,) int64: the example that each row
    is, or is a part of.
    """

    ids: np.ndarray
    keys: np.ndarray
    segments: np.ndarray | None = None
    word_starts: np.ndarray | None = None
    source: "Rows | None" = None
    labels: np.ndarray | None = None
    row_labels: np.ndarray | None = None
    examples: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, first: int, last: int) -> "Rows":
        """Rows first..last-1, as one micro-batch."""
        given = {name: part for name, part in vars(self).items() if part is not None}
        cut: Any = {name: part.part(first, last) if isinstance(part, Rows) else part[first:last] for name, part in given.items()}
        return Rows(**cut)


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs and targets.

    at (T,): flat indices into (B, L) of the target positions; None = all. labels (T,): the targets.
    draws: random numbers that decide targets. counts: the denominators of the parts of the loss, summed over the whole
    optimizer step; always with "tokens" (tokens that are not padding).
    """

    inputs: Tokens
    labels: Tensor
    at: Tensor | None = None
    source: Tokens | None = None
    draws: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def to(self, device: torch.device) -> "Batch":
        return Batch(
            self.inputs.to(device),
            self.labels.to(device, non_blocking=True),
            None if self.at is None else self.at.to(device, non_blocking=True),
            None if self.source is None else self.source.to(device),
            {name: draw.to(device, non_blocking=True) for name, draw in self.draws.items()},
            self.counts,
        )

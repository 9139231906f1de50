"""Rows of token ids on their way to a model: what the plan chose, and what an objective made of it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mini_tf.nn.tokens import Tokens


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of text, chosen by the plan or by evaluation, still without a question.

    ids (B, n) int64; n is the context plus the objective's `lookahead`. Where all rows are whole windows of one stream,
    `segments` is None. Else segments (B, n): 0 is padding, equal numbers are one document.
    keys (B,): a 64-bit seed for each row, of (seed, step, row) in training and of (seed, example) in evaluation.
    word_starts (B, n): True where a token begins a word; None where the objective did not ask for it.
    source: of pairs, what is read besides: rows (B, m) of their own.
    labels (B, n) float32: of labelled tokens, NaN = none. row_labels (B, k) float32: of rows labelled as a whole. examples (B,) int64:
    which example each row is, or is a part of.
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
    """A question and what is needed to judge the answer.

    at (T,): flat index into (B, L) of the places that are judged; None = all of them. labels (T,): what belongs there.
    draws: randomness that decides what is learnt. counts: what each part of the loss is divided by, summed over the
    whole optimizer step; always has "tokens" (tokens that are not padding).
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

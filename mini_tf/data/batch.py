"""Rows of token ids, and the batches that an objective makes of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mini_tf.data.store import Store
from mini_tf.nn.tokens import Tokens

DOCUMENTS, DOCUMENT_IDS = 64, 2**16
"""Documents of `document_batches` at once, and their ids with padding, unless there is one document."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of token ids, without inputs and targets yet: B rows of n tokens, where n is the context plus the
    objective's `lookahead`.

    ids (B, n): int64.
    keys (B,): 64-bit random seed of each row: from (seed, step, row) in training, from (seed, example) in evaluation.
    segments (B, n): document of each token, 0 = padding; None if every row is a full window on one stream.
    word_starts (B, n): True where a token begins a word; None unless the objective has `needs_word_starts`.
    source: Rows (B, m) of the source, for an encoder-decoder.
    labels (B, n): float32 label of each token, NaN = none.
    row_labels (B, k): float32 labels of each row.
    examples (B,): int64, the example that each row comes from.
    sentence_starts (B, n): True where a token begins a sentence; None unless the objective has `needs_sentence_starts`.
    progress (B,): share of the run's steps before that of the row, from 0 to 1; None in evaluation.
    """

    ids: np.ndarray
    keys: np.ndarray
    segments: np.ndarray | None = None
    word_starts: np.ndarray | None = None
    source: "Rows | None" = None
    labels: np.ndarray | None = None
    row_labels: np.ndarray | None = None
    examples: np.ndarray | None = None
    sentence_starts: np.ndarray | None = None
    progress: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def slice(self, first: int, last: int) -> "Rows":
        """Rows first..last-1, e.g. of one micro-batch."""
        return self.select(slice(first, last))

    def select(self, rows: Any) -> "Rows":
        """These rows (a slice or indices), in this order; one may be chosen several times."""
        arrays = {name: value for name, value in vars(self).items() if value is not None}
        chosen: Any = {
            name: value.select(rows) if isinstance(value, Rows) else value[rows] for name, value in arrays.items()
        }
        return Rows(**chosen)

    def padded(self, width: int) -> "Rows":
        """Rows of `width` tokens: shorter ones are padded (segment 0, id 0). The source stays as it is."""
        if (n := width - self.ids.shape[1]) == 0:
            return self
        arrays = vars(self.with_segments())
        padded: Any = {
            name: np.pad(arrays[name], ((0, 0), (0, n)), constant_values=pad)
            for name, pad in PADS.items()
            if arrays[name] is not None
        }
        return replace(self, **padded)

    def with_segments(self) -> "Rows":
        return self if self.segments is not None else replace(self, segments=np.ones_like(self.ids))


PADS = {"ids": 0, "segments": 0, "word_starts": False, "sentence_starts": False, "labels": np.nan}
"""Fields of `Rows` of (B, n), and what stands at padding."""


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Concatenate rows of the same fields; shorter ones are padded (segment 0, id 0) to the longest."""
    width = max(part.ids.shape[1] for part in parts)
    parts = [part.padded(width) for part in parts]
    if any(part.segments is not None for part in parts):
        parts = [part.with_segments() for part in parts]
    joined: Any = {}
    for name in vars(parts[0]):
        values = [value for part in parts if (value := getattr(part, name)) is not None]
        if values:
            joined[name] = join_rows(values) if isinstance(values[0], Rows) else np.concatenate(values)
    return Rows(**joined)


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs (B, L) and targets of one micro-batch.

    target_positions (T,): flat indices into (B, L) of the positions that have a target; None = all positions.
    labels (T, ...): the targets.
    source: source tokens of an encoder-decoder.
    extras: further tensors that only the objective reads, e.g. random draws made in `prepare`.
    counts: what each part of the loss is divided by, summed over the optimizer step; "tokens" (no padding) is required.
    """

    inputs: Tokens
    labels: Tensor
    target_positions: Tensor | None = None
    source: Tokens | None = None
    extras: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def to(self, device: torch.device) -> "Batch":
        return self.each(lambda t: t.to(device, non_blocking=True))

    def each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """With `change` applied to every tensor."""
        return Batch(
            self.inputs.each(change),
            change(self.labels),
            None if self.target_positions is None else change(self.target_positions),
            None if self.source is None else self.source.each(change),
            {name: change(tensor) for name, tensor in self.extras.items()},
            self.counts,
        )


def document_batches(data: Store, of_class: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Ids of some documents with their separators, False at padding, and `of_class` of their labels, or 0."""
    begin = 0
    while begin < data.n_documents:
        spans = [data.span(n) for n in range(begin, min(begin + DOCUMENTS, data.n_documents))]
        lengths = torch.tensor([last + data.separated - first for first, last in spans])
        fits = lengths.cummax(0).values * torch.arange(1, len(spans) + 1) <= DOCUMENT_IDS
        n = max(1, int(fits.sum()))
        spans, lengths = spans[:n], lengths[:n]
        ids = torch.zeros(len(spans), int(lengths.max()), dtype=torch.int64)
        for row, (first, last) in zip(ids, spans, strict=True):
            document = data.ids[first : last + data.separated].astype(np.int64)
            row[: len(document)] = torch.from_numpy(document)
        classes = torch.zeros(n, dtype=torch.int64)
        if of_class is not None:
            assert data.row_labels is not None
            classes = of_class[torch.from_numpy(data.row_labels[begin : begin + n, 0].astype(np.int64))]
        yield ids, torch.arange(ids.shape[1]) < lengths[:, None], classes
        begin += n

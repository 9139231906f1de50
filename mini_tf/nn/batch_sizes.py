"""Sizes of one batch, from which FLOPs are computed by formula: matrix products, a multiply-add is two."""

from collections.abc import Mapping
from typing import NamedTuple


class BatchSizes(NamedTuple):
    """Sizes of one micro-batch, padding included.

    rows, length: of the inputs (B, L); source: tokens per row of the source, 0 = none. targets: number of labels.
    vocabulary: size of the target vocabulary; outputs: outputs of the model's head, such as classes. counts: as
    `Batch.counts`, by part of the loss. shared_positions, shared_source_positions: all rows have the same positions, so
    a map of positions alone is computed once.
    """

    rows: int
    length: int
    targets: int
    vocabulary: int
    outputs: int
    source: int = 0
    counts: Mapping[str, int] = {}
    shared_positions: bool = False
    shared_source_positions: bool = False

"""Comparisons of rows, batches and sums, for the contract of objectives."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.tokens import Tokens
from mini_tf.testing.rows import FIRST_PLAIN

CLOSE = 1e-6


def added(mappings: Iterator[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            total[name] = total[name] + value if name in total else value
    return total


def near(actual: Any, expected: Any) -> bool:
    actual, expected = (torch.as_tensor(value).detach().double() for value in (actual, expected))
    return bool((actual - expected).norm() <= CLOSE * max(1.0, float(expected.norm())))


def equal(one: Tensor, other: Tensor) -> bool:
    """NaN, the label of what has none, equals NaN."""
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


def differ(hidden: Tensor, other: Tensor) -> Tensor:
    """(T,): the rows of two tensors (T, D) that differ by more than rounding."""
    return (hidden - other).abs().amax(-1) > 1e-9


def with_other_tokens(rows: Rows, chosen: np.ndarray, vocabulary: Vocabulary) -> Rows:
    """The rows with other plain tokens at the chosen places (B, n), in place of plain ones."""
    plain = np.setdiff1d(np.arange(vocabulary.size), sorted(vocabulary.special_ids))
    next_one = np.arange(vocabulary.size)
    next_one[plain] = np.roll(plain, -1)
    real = np.ones_like(chosen) if rows.segments is None else rows.segments != 0
    return replace(rows, ids=np.where(chosen & real, next_one[rows.ids], rows.ids))


def target_indices(batch: Batch) -> list[list[int]]:
    """The positions of the targets of each row; all if the batch has no `target_positions`."""
    is_target = torch.ones(batch.inputs.ids.shape, dtype=torch.bool)
    if batch.target_positions is not None:
        is_target = torch.zeros_like(is_target).flatten().index_fill(0, batch.target_positions, True).view_as(is_target)
    return [row.nonzero().flatten().tolist() for row in is_target]


def unpadded(batch: Batch) -> list[tuple[list[int], ...]]:
    """The ids of each row without padding: inputs, and the source if there is one."""
    sides = [one for one in (batch.inputs, batch.source) if one is not None]
    return [tuple(side.ids[row][_real(side)[row]].tolist() for side in sides) for row in range(len(batch.inputs.ids))]


def _real(tokens: Tokens) -> Tensor:
    """Mask of the tokens that are not padding (B, L)."""
    positions = tokens.token_positions
    return (
        torch.ones_like(tokens.ids, dtype=torch.bool)
        if positions is None or positions.segments is None
        else positions.segments != 0
    )


def other_padding(rows: Rows) -> Rows:
    """The same rows with a plain token as padding."""
    assert rows.segments is not None
    return replace(rows, ids=np.where(rows.segments == 0, FIRST_PLAIN + 5, rows.ids))

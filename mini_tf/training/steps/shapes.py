"""Shapes that recur: of many lengths of rows and numbers of targets few are left, so that each has a CUDA graph."""

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.objectives import Task

LENGTHS = 8
"""Lengths of rows that occur after padding, at most."""
TARGETS = 32
"""Numbers of targets that occur after padding, at most, for each shape of the inputs."""


def with_recurring_shapes(
    prepare: Callable[[Rows], Batch], task: nn.Module, context: int, lookahead: int
) -> Callable[[Rows], Batch]:
    """`Objective.prepare`, with more padding and with ignored targets.

    Losses, metrics and gradients stay the same, up to the order of sums and to dropout, whose random numbers are those
    of another shape.
    """

    def prepare_padded(rows: Rows) -> Batch:
        batch = prepare(pad_rows(rows, context, lookahead))
        return task.pad_targets(batch, TARGETS) if isinstance(task, Task) else batch

    return prepare_padded


def pad_rows(rows: Rows, context: int, lookahead: int) -> Rows:
    """Rows whose inputs have a multiple of context / `LENGTHS` tokens, but not more than `context`.

    Text with a lookahead stays as it is: the last token of the longest rows would become an input, and be counted.
    """
    if lookahead and rows.source is None and rows.labels is None:
        return rows
    padded = _padded(rows, context, lookahead)
    return padded if rows.source is None else replace(padded, source=_padded(rows.source, context, 0))


def _padded(rows: Rows, context: int, lookahead: int) -> Rows:
    multiple, length = -(-context // LENGTHS), rows.ids.shape[1] - lookahead
    return rows.padded(max(length, min(context, -(-length // multiple) * multiple)) + lookahead)

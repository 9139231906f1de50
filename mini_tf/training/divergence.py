"""Divergence: the reason why a step is refused, and the rows and documents of its batch.

Numbers in messages count from 1: steps, micro-batches, rows, documents (of the training data).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from torch import Tensor

from mini_tf.parallel.group import ProcessGroup
from mini_tf.recipe.sections import Train
from mini_tf.training.feed import Feed

_SHOWN = 8


@dataclass(frozen=True)
class Tolerance:
    """most_skips: consecutive non-finite steps that may be skipped. stop_above: largest training loss allowed."""

    most_skips: int = 0
    stop_above: float = math.inf

    @classmethod
    def of(cls, train: Train) -> "Tolerance":
        above = math.inf if train.stop_above is None else train.stop_above
        return cls(train.most_skips if train.on_nonfinite == "skip" else 0, above)


@dataclass(frozen=True)
class Problem:
    """Why a step diverged. micro: micro-batch (from 0), None = whole step. parameters: with a non-finite gradient."""

    message: str
    micro: int | None = None
    parameters: tuple[str, ...] = ()
    may_be_skipped: bool = True


@dataclass(frozen=True)
class StepData:
    """Rows and documents of a step or of one of its micro-batches; documents is empty if the data is a single one.

    names: where the rows are in the files, of documents without numbers.
    """

    rows: list[int]
    documents: list[int]
    names: Sequence[str] = ()

    @classmethod
    def of(cls, feed: Feed, step: int, micro: int | None) -> "StepData":
        """step and micro count from 0."""
        chosen = feed.plan.rows(step)
        cut = slice(None) if micro is None else slice(*feed.bounds(len(chosen.rows))[micro])
        rows, epochs = chosen.rows[cut], chosen.epochs[cut]
        documents = [feed.packing.documents(rows[epochs == epoch], int(epoch)) for epoch in np.unique(epochs)]
        names = feed.packing.names(rows)
        return cls([int(row) + 1 for row in rows], sorted({int(n) + 1 for n in np.concatenate(documents)}), names)

    def __str__(self) -> str:
        if self.names:
            return f"{'; '.join(self.names[:_SHOWN])}{'; ...' if len(self.names) > _SHOWN else ''}"
        return f"documents {ranges(self.documents)}" if self.documents else f"rows {ranges(sorted(set(self.rows)))}"


def gradient_problem(gradients: Mapping[str, Tensor | None], norm: float, group: ProcessGroup | None = None) -> Problem:
    """The problem of a non-finite gradient norm, with the names of the parameters.

    group: processes that have a part of the gradients each; collective.
    """
    here = [name for name, grad in gradients.items() if grad is not None and not bool(grad.isfinite().all())]
    not_finite = {name for some in (group or ProcessGroup()).all_gather(here) for name in some}
    bad = [name for name in gradients if name in not_finite]
    named = f" (in {', '.join(bad[:3])}{', ...' if len(bad) > 3 else ''})" if bad else ""
    return Problem(f"the gradient norm is {norm}{named}, but must be finite", parameters=tuple(bad))


def ranges(numbers: Iterable[int]) -> str:
    """[3, 4, 5, 9] -> "3-5, 9"; at most eight ranges."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), key=lambda counted: counted[1] - counted[0])]
    named = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs[:_SHOWN]]
    return ", ".join(named) + (", ..." if len(runs) > _SHOWN else "")

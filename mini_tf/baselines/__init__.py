"""Baselines: cheap methods on the same data and split as a model, so that its metrics can be judged.

The contract is here; every other file of this package is one baseline, which an objective names (`BASELINES`). Metrics
have the names of the model's, and are of the same validation targets.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.datasets import Dataset
from mini_tf.data.examples import Labels
from mini_tf.data.packing import Packing
from mini_tf.data.store import Store
from mini_tf.recipe.kinds import Kind
from mini_tf.system.seeds import seed_of

BATCH_TOKENS = 1 << 16
"""Tokens of a batch of `BaselineData.batches`, about."""


class NoBaseline(Exception):
    """The baseline does not apply to these data; the message says why."""


class Measured(NamedTuple):
    """The metrics of a baseline. name: in messages. note: on what it was fitted, if not on all the data."""

    name: str
    metrics: dict[str, float]
    note: str = ""


@dataclass(frozen=True, eq=False)
class BaselineData:
    """What a baseline is fitted and measured on.

    train: the training split. val: the rows of an evaluation of the model. prepare: makes a batch of them, as for the
    model. every_token: every token is a target once, so that bits per byte are defined. check: to be called now and
    then; an exception from it ends the work.
    """

    dataset: Dataset
    train: Store
    val: Packing
    prepare: Callable[[Rows], Batch]
    labels: Labels | None = None
    every_token: bool = False
    check: Callable[[], None] = field(default=lambda: None)

    def batches(self) -> Iterator[Batch]:
        """The batches of an evaluation: every target once, with the inputs of the model, as masked as its own."""
        for rows in self.val.eval_rows(max(1, BATCH_TOKENS // self.val.shape.context)):
            self.check()
            yield self.prepare(rows)

    def examples(self, store: Store, most_bytes: int | None = None) -> Iterator[Any]:
        """The original examples of a split in order, or a random part of them with about so many bytes of text."""
        share = 1.0 if most_bytes is None else most_bytes / max(1, store.raw_bytes)
        chosen = np.random.default_rng(seed_of("baseline")).random(store.n_documents) < share
        for number, example in enumerate(self.dataset.examples(store)):
            if number % 1024 == 0:
                self.check()
            if chosen[number]:
                yield example


class BaselineSettings(Kind):
    """Base class of baselines."""

    PACKAGE = "baselines"

    METRICS: ClassVar[tuple[str, ...]]
    """The metrics that `measure` returns; some may be missing."""
    REQUIRES: ClassVar[tuple[str, ...]] = ()
    """Packages that it needs: keys of `scores.PACKAGES`."""
    VERSION: ClassVar[int] = 1
    """Increase it if the same data give other metrics, since they are cached."""

    def measure(self, data: BaselineData) -> Measured:
        """Fit on the training split and measure on the validation data; deterministic. Raises NoBaseline."""
        raise NotImplementedError

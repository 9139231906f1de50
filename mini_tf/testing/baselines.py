"""The contract of baselines: metrics with the names of the model's, measured in the same way every time.

A baseline is tested with an objective that names it, and rows of that objective's dataset (see `testing.datasets`), of
which the last third are the validation data.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch

from mini_tf.baselines import BaselineData, BaselineSettings, Measured
from mini_tf.data.packing import Shape
from mini_tf.data.split import Examples, as_split
from mini_tf.objectives import Objective
from mini_tf.recipe.kind_settings.objectives import ObjectiveSettings
from mini_tf.recipe.metrics import metrics_of
from mini_tf.scores import PACKAGES
from mini_tf.testing import Case, checks_of
from mini_tf.testing.tiny.datasets import DatasetFixture, Row

CONTEXT = 256


@dataclass(frozen=True, eq=False)
class BaselineFixture:
    """A baseline, and the data of an objective."""

    settings: BaselineSettings
    objective: ObjectiveSettings
    data: DatasetFixture

    @cached_property
    def inputs(self) -> BaselineData:
        data, examples = self.data, self.data.examples
        n = 2 * len(examples) // 3
        train, val = Examples.of(lambda: iter(examples[:n])), Examples.of(lambda: iter(examples[n:]))
        stores = data.stores("stores", [*as_split(train, "train"), *as_split(val, "val")])
        objective: Objective = self.objective.build(data.used.target.vocabulary, data.labels)
        used = data.used.target
        words = used.word_starts if objective.needs_word_starts else None
        sentences = used.sentence_starts if objective.needs_sentence_starts else None
        rows = data.dataset.packing(stores["val"], Shape(CONTEXT, objective.lookahead, "none", 0, words, sentences))
        return BaselineData(
            data.dataset,
            stores["train"],
            rows,
            objective.prepare,
            data.labels,
            "every_token" in self.objective.PREDICTS,
        )

    def measure(self) -> Measured:
        return self.settings.measure(self.inputs)


def declares_its_metrics(fixture: BaselineFixture) -> None:
    declared, known, baseline = {*fixture.settings.METRICS}, {*metrics_of(fixture.objective)}, fixture.measure()
    assert baseline.name, "a baseline must have a name"
    assert baseline.metrics, "it must measure something"
    assert baseline.metrics.keys() <= declared, f"METRICS must declare {baseline.metrics.keys() - declared}"
    assert baseline.metrics.keys() <= known, (
        f"the model of {fixture.objective.kind} has no {baseline.metrics.keys() - known}"
    )
    for name, value in baseline.metrics.items():
        assert isinstance(value, float) and math.isfinite(value), f"{name} must be a finite float, not {value!r}"  # noqa: PT018


def needs_known_packages(fixture: BaselineFixture) -> None:
    unknown = {*fixture.settings.REQUIRES} - PACKAGES.keys()
    assert not unknown, f"REQUIRES: scores.PACKAGES has no {unknown}"


def measures_the_same_again(fixture: BaselineFixture) -> None:
    """And changes no global generator, on which training might depend."""
    before = repr(np.random.get_state()), torch.get_rng_state()
    assert fixture.measure() == fixture.measure(), "the same data must give the same metrics"
    assert repr(np.random.get_state()) == before[0], "measure must not use numpy's global generator"
    assert torch.equal(torch.get_rng_state(), before[1]), "measure must not use torch's global generator"


CONTRACT = checks_of(__name__)


def cases(settings: BaselineSettings, objective: ObjectiveSettings, rows: Sequence[Row]) -> list[Case]:
    """All checks for a baseline on the data of an objective."""
    return [Case(check.__name__, partial(_run, check, settings, objective, rows)) for check in CONTRACT]


def _run(
    check: Callable[[BaselineFixture], None],
    settings: BaselineSettings,
    objective: ObjectiveSettings,
    rows: Sequence[Row],
) -> None:
    with DatasetFixture.temporary(objective.dataset(), rows) as data:
        check(BaselineFixture(settings, objective, data))

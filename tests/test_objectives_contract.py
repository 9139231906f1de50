"""Every objective keeps to the contract of objectives; and the contract finds what is wrong with one that does not."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch
from mini_tf.objectives import LossSums
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing import objectives as contract
from mini_tf.testing.kinds import kinds_in

POOLS = [(kind, {"pool": pool}) for kind in ("classify", "regress") for pool in ("first", "last", "max", "attention")]
POOLS += [
    ("classify", {"wide": {"order": 2, "rows": 64, "characters": (2, 3), "log_counts": True, "class_ratios": True, "own_loss": True}}),
    ("tag", {"wide": {"window": 1, "rows": 64}}),
    ("tag", {"wide": {"unit": "word", "order": 3, "rows": 64}}),
]
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *POOLS,
    ("classify", {"class_weights": "balanced"}),
    ("tag", {"class_weights": {"O": 0.2}}),
    ("masked", {"scheme": "whole_word"}),
    ("masked", {"scheme": "span", "replace": (0.0, 1.0, 0.0)}),
    ("denoising", {"noise": {"kind": "spans", "rate": 0.4}, "target": "spans"}),
    ("denoising", {"noise": ({"kind": "mask"}, {"kind": "delete"}, {"kind": "rotate"})}),
    ("prefix", {"prefix_rate": (0.2, 0.5)}),
    ("replaced_token", {"tying": "all", "generator_width": 1.0, "disallow_correct": True}),
    ("replaced_token", {"loss_on": "masked", "loss": "softmax", "generator_depth": 0.5, "tying": "none"}),
    ("replaced_token", {"proposal": "unigram", "loss": "softmax_copy", "scheme": "whole_word"}),
    ("replaced_token", {"proposal": "mask", "loss_on": "masked", "loss": "softmax"}),
]


@pytest.mark.parametrize("check", contract.CONTRACT, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("kind", "given"), [*((kind, {}) for kind in listing("objectives")), *VARIANTS], ids=str)
def test_every_objective_keeps_to_the_contract(kind: str, given: dict[str, Any], check: Any) -> None:
    check(settings_of("objectives", kind)(**given))


def loss(change: Callable[[Tensor, Batch], Tensor]) -> Callable[[LossSums, Batch], LossSums]:
    """The same sums with another loss."""
    return lambda sums, batch: sums._replace(parts={"margin": change(sums.parts["margin"], batch)})


def metrics(**given: Any) -> Callable[[LossSums, Batch], LossSums]:
    return lambda sums, batch: sums._replace(metrics=given)


def counts(**given: int) -> Callable[[Batch], Batch]:
    return lambda batch: replace(batch, counts=batch.counts | given)


def ids(change: Callable[[Tensor], Tensor]) -> Callable[[Batch], Batch]:
    return lambda batch: replace(batch, inputs=replace(batch.inputs, ids=change(batch.inputs.ids)))


ONE = (torch.tensor(1.0), 1)


@pytest.mark.parametrize(
    ("check", "change", "told"),
    [
        (contract.micro_batches_change_nothing, counts(margin=8), "counts: margin depends"),
        (contract.padding_changes_nothing, counts(tokens=72), "counts: tokens must be all"),
        (
            contract.padding_changes_nothing,
            lambda batch: replace(batch, target_positions=torch.arange(len(batch.labels))),
            "padding must not be a target",
        ),
        (
            contract.padding_changes_nothing,
            lambda batch: replace(batch, inputs=replace(batch.inputs, token_positions=None)),
            "must have segments",
        ),
        (contract.prepare_is_pure, lambda batch: replace(batch, labels=batch.labels + torch.randint(9, ())), "torch's global generator"),
        (contract.prepare_is_pure, lambda batch: replace(batch, labels=batch.labels + np.random.randint(9)), "numpy's global generator"),
        (contract.prepare_is_pure, ids(lambda ids: ids + len(ids)), "one by one: inputs must be equal"),
        (contract.prepare_is_pure, counts(margin=8), "one by one: counts must be equal"),
        (contract.parts_are_counted, lambda batch: replace(batch, counts={"tokens": 9}), "there must be one for the part margin"),
        (contract.parts_are_counted, counts(margin=0), "margin is 0, but the part of the loss is"),
    ],
)
def test_an_objective_that_prepares_wrongly_is_found_out(
    check: Any, change: Callable[[Batch], Batch], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kinds_in("objectives", Path(__file__).parent / "strangers" / "objectives"):
        settings: Any = settings_of("objectives", "margin")()
        kind: Any = sys.modules[type(settings).__module__].Margin
        prepare = kind.prepare
        monkeypatch.setattr(kind, "prepare", lambda self, rows: change(prepare(self, rows)))
        with pytest.raises(AssertionError, match=told):
            check(settings)


@pytest.mark.parametrize(
    ("check", "change", "told"),
    [
        (contract.micro_batches_change_nothing, loss(lambda loss, batch: loss / len(batch.labels)), "parts: margin depends"),
        (contract.micro_batches_change_nothing, metrics(accuracy=ONE), "metrics: accuracy 0 depends"),
        (contract.padding_changes_nothing, loss(lambda loss, batch: loss + batch.inputs.ids.sum()), "must not depend on padding"),
        (contract.parts_are_counted, loss(lambda loss, batch: loss[None]), "margin must be a scalar"),
        (contract.parts_are_counted, metrics(hits=ONE), r"must declare \['hits'\]"),
        (contract.parts_are_counted, metrics(accuracy=(torch.tensor(1.0), -1)), "denominator of a metric"),
        (contract.parts_are_counted, lambda sums, batch: sums._replace(outputs=torch.ones(1)), "outputs need a metric accumulator"),
        (contract.evaluation_is_repeatable, loss(lambda loss, batch: loss + torch.rand(())), "the loss must be deterministic"),
        (
            contract.half_precision_preserves_the_loss,
            loss(lambda loss, batch: loss.bfloat16()),
            "not in torch.bfloat16",
        ),
        (contract.eight_rows_are_overfitted, loss(lambda loss, batch: loss + 1e4), "after 5 steps the loss must be"),
    ],
)
def test_a_task_that_sums_wrongly_is_found_out(
    check: Any, change: Callable[[LossSums, Batch], LossSums], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "STEPS", 5)
    with kinds_in("objectives", Path(__file__).parent / "strangers" / "objectives"):
        settings: Any = settings_of("objectives", "margin")()
        kind: Any = sys.modules[type(settings).__module__].Scored
        forward = kind.forward
        monkeypatch.setattr(kind, "forward", lambda self, batch, state=None: change(forward(self, batch, state), batch))
        with pytest.raises(AssertionError, match=told):
            check(settings)


def test_a_task_that_changes_the_model_or_leaves_something_untrained_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with kinds_in("objectives", Path(__file__).parent / "strangers" / "objectives"):
        settings: Any = settings_of("objectives", "margin")()
        kind: Any = sys.modules[type(settings).__module__].Margin
        task = kind.task

        def idle(self: Any, model: nn.Module) -> nn.Module:
            made = task(self, model)
            made.idle = nn.Linear(2, 2)
            return made  # type: ignore[no-any-return]

        monkeypatch.setattr(kind, "task", idle)
        with pytest.raises(AssertionError, match=r"must have a gradient: \['objective.idle.bias', 'objective.idle.weight'\]"):
            contract.eight_rows_are_overfitted(settings)

        monkeypatch.setattr(kind, "task", lambda self, model: [p.data.add_(1) for p in model.parameters()] and task(self, model))
        with pytest.raises(AssertionError, match="the task must not change the model"):
            contract.task_does_not_change_the_model(settings)

"""The contract of objectives: micro-batches, padding, determinism by row key, counted targets, overfitting.

Each check builds the objective with the smallest model that fits, and eight rows of its dataset.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mini_tf.data.batch import Batch, Rows
from mini_tf.nn.tokens import Tokens
from mini_tf.nn.weights.objective_network import objective_tensors, trained_module
from mini_tf.objectives import LossSums, ObjectiveSettings
from mini_tf.recipe.metrics import metrics_of
from mini_tf.testing import Case, cases_of
from mini_tf.testing.datasets import Row
from mini_tf.testing.rows import FIRST_PLAIN, N_ROWS
from mini_tf.testing.tiny.objectives import Given, Tried, tiny_objective
from mini_tf.training.flops import flops_of, sizes_of

CLOSE = 1e-6
STEPS = 400
"""Maximum number of steps to overfit eight rows."""


def micro_batches_change_nothing(tried: Tried) -> None:
    """Any split into micro-batches gives the same sums, counts, metrics and gradients of the step."""
    found: list[dict[str, Any]] = []
    for size in (N_ROWS, 3, 1):
        case = tiny_objective(tried)
        done = [case.sums(rows) for rows in case.cut(size)]
        counts = _added(batch.counts for batch, _ in done)
        parts = _added(sums.parts for _, sums in done)
        case.loss(parts, counts).backward()
        metrics = _added({f"{name} {n}": pair[n] for name, pair in sums.metrics.items() for n in (0, 1)} for _, sums in done)
        gradients = {name: p.grad for name, p in case.task.named_parameters() if p.grad is not None}
        found.append({"counts": counts, "parts": parts, "metrics": metrics, "gradients": gradients})
    for other in found[1:]:
        for what, whole in found[0].items():
            assert other[what].keys() == whole.keys(), f"{what}: names must not depend on the micro-batches"
            for name, value in whole.items():
                assert _near(other[what][name], value), f"{what}: {name} depends on the micro-batches"


def padding_changes_nothing(tried: Tried) -> None:
    """Padding is not a target and not counted, and its content has no effect."""
    case = tiny_objective(tried)
    batch = case.objective.prepare(case.rows)
    real = None if batch.inputs.token_positions is None else batch.inputs.token_positions.segments
    assert real is not None, "the batch must have segments that mark padding"
    assert batch.counts["tokens"] == int((real != 0).sum()), "counts: tokens must be all input tokens without padding"
    assert batch.target_positions is None or bool((real.flatten()[batch.target_positions] != 0).all()), "padding must not be a target"
    other = replace(_other_padding(case.rows), source=None if case.rows.source is None else _other_padding(case.rows.source))
    for training in (True, False):
        (_, expected), (_, found) = case.sums(training=training), case.sums(other, training)
        for name, part in expected.parts.items():
            assert _near(found.parts[name], part), f"{name} must not depend on padding"


def prepare_is_pure(tried: Tried) -> None:
    """`prepare` changes neither rows nor random generators; its random choices depend only on a row's key."""
    case = tiny_objective(tried)
    arrays = {name: value for name, value in vars(case.rows).items() if isinstance(value, np.ndarray)}
    before = {name: array.copy() for name, array in arrays.items()}
    generators = torch.get_rng_state(), repr(np.random.get_state())
    whole, again = case.objective.prepare(case.rows), case.objective.prepare(case.rows)
    single = [case.objective.prepare(rows) for rows in case.cut(1)]
    for name, array in arrays.items():
        assert np.array_equal(array, before[name], equal_nan=array.dtype.kind == "f"), f"prepare must not change rows.{name}"
    assert torch.equal(torch.get_rng_state(), generators[0]), "prepare must not use torch's global generator"
    assert repr(np.random.get_state()) == generators[1], "prepare must not use numpy's global generator"
    for what, batches in (("prepared twice", [again]), ("prepared one by one", single)):
        assert _unpadded(whole) == [row for one in batches for row in _unpadded(one)], f"{what}: inputs must be equal"
        assert torch.equal(whole.labels, torch.cat([one.labels for one in batches])), f"{what}: labels must be equal"
        targets = [_target_indices(one) for one in (whole, *batches)]
        assert targets[0] == [row for rows in targets[1:] for row in rows], f"{what}: targets must be equal"
        assert whole.counts == _added(one.counts for one in batches), f"{what}: counts must be equal"
    for name, draw in whole.extras.items():
        assert torch.equal(draw, again.extras[name]), f"draws: {name} must be equal when prepared twice"


@torch.no_grad()
def parts_are_counted(tried: Tried) -> None:
    """Every part of the loss has a count, which is 0 only if the part is; metrics have the declared names."""
    case = tiny_objective(tried)
    settings = case.objective.settings
    declared, accumulator = metrics_of(settings), case.metric_accumulator
    for rows in (case.rows, *case.cut(1)):
        batch, sums = case.sums(rows, training=False)
        assert sums.parts, "the loss must have a part"
        for name, part in sums.parts.items():
            assert part.dim() == 0, f"{name} must be a scalar"
            assert name in batch.counts, f"counts: there must be one for the part {name} of the loss"
            assert batch.counts[name] or not part, f"counts: {name} is 0, but the part of the loss is {float(part):g}"
        assert settings.TOKEN_LOSS is None or settings.TOKEN_LOSS in sums.parts, "TOKEN_LOSS must be a part of the loss"
        assert sums.metrics.keys() <= {*declared}, f"METRICS must declare {sorted(sums.metrics.keys() - {*declared})}"
        assert all(float(many) >= 0 for _, many in sums.metrics.values()), "the denominator of a metric must not be negative"
        assert (sums.outputs is None) or accumulator is not None, "outputs need a metric accumulator"
        if accumulator is not None:
            assert sums.outputs is not None, "a metric accumulator needs outputs"
            accumulator.add(batch, sums.outputs)
    scores = {} if accumulator is None else accumulator.scores()
    assert all(np.isfinite(score) for score in scores.values()), f"metrics must be finite: {scores}"
    undeclared = [name for name in scores if not any(name.startswith(one) if one.endswith(".") else name == one for one in declared)]
    assert not undeclared, f"METRICS must declare {undeclared}"


def evaluation_is_repeatable(tried: Tried) -> None:
    """In eval mode there is no dropout and no randomness."""
    found: list[LossSums] = []
    for dropout in (0.0, 0.0, 0.5):
        case = tiny_objective(tried, dropout=dropout)
        torch.manual_seed(len(found))
        found.append(case.sums(training=False)[1])
    for other in found[1:]:
        assert other.parts.keys() == found[0].parts.keys()
        assert all(torch.equal(other.parts[name], part) for name, part in found[0].parts.items()), (
            "in eval mode the loss must be deterministic"
        )
        outputs = [one.outputs for one in (other, found[0]) if one.outputs is not None]
        assert not outputs or torch.equal(*outputs), "in eval mode outputs must be deterministic"


def half_precision_preserves_the_loss(tried: Tried) -> None:
    """Under bf16 autocast losses are summed in fp32 and are about the same."""
    case = tiny_objective(tried)
    case.task.float()
    for training in (True, False):
        _, exact = case.sums(training=training)
        with torch.autocast("cpu", torch.bfloat16):
            _, rough = case.sums(training=training)
        for name, part in exact.parts.items():
            assert rough.parts[name].dtype == torch.float32, f"{name} must be summed in fp32, not in {rough.parts[name].dtype}"
            assert abs(rough.parts[name] - part) <= 0.2 * abs(part) + 0.1, f"{name} must be about {part:g} in bf16: {rough.parts[name]:g}"


def eight_rows_are_overfitted(tried: Tried) -> None:
    """AdamW reduces the loss on eight rows to a tenth, and every parameter has a gradient at some step."""
    case = tiny_objective(tried, d_model=32)
    trained = trained_module(case.model, case.task)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=5e-3, weight_decay=0.0)
    without_gradient, losses = {name for name, _ in trained.named_parameters()}, list[float]()
    while len(losses) <= STEPS and not (len(losses) > 2 and losses[-1] < 0.1 * losses[0]):
        batch, sums = case.sums()
        loss = case.loss(sums.parts, batch.counts)
        losses.append(loss.item())
        loss.backward()
        without_gradient -= {name for name, p in trained.named_parameters() if p.grad is not None and bool(p.grad.any())}
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < 0.1 * losses[0], f"after {STEPS} steps the loss must be a tenth of {losses[0]:g}: {losses[-1]:g}"
    assert not without_gradient, f"parameters must have a gradient: {sorted(without_gradient)}"


def task_does_not_change_the_model(tried: Tried) -> None:
    """Building the task changes no weight of the model; its own weights depend only on torch's generator."""
    case = tiny_objective(tried)
    before = {name: tensor.clone() for name, tensor in case.model.weights().items()}
    drawn = []
    for _ in range(2):
        torch.manual_seed(1)
        drawn.append(objective_tensors(case.model, case.objective.task(case.model).double()))
    assert case.model.weights().keys() == before.keys(), "the task must not add weights to the model"
    assert all(torch.equal(tensor, before[name]) for name, tensor in case.model.weights().items()), "the task must not change the model"
    assert all(torch.equal(tensor, drawn[1][name]) for name, tensor in drawn[0].items()), "the same seed must give the same weights"


@torch.no_grad()
def the_formula_gives_the_counted_flops(tried: Tried) -> None:
    """The FLOPs by formula are those of a forward pass, or None if no formula is known."""
    case = tiny_objective(tried)
    batch = case.objective.prepare(case.rows)
    assert isinstance(case.objective.settings, ObjectiveSettings)
    formula = case.objective.settings.forward_flops(case.model_settings, sizes_of(batch, case.model, case.vocabulary.size))
    counted = flops_of(lambda: case.task.train()(batch, None))
    assert formula in (None, counted), f"forward_flops gives {formula} FLOPs, a forward pass has {counted}; override it"


CONTRACT = (
    micro_batches_change_nothing,
    padding_changes_nothing,
    prepare_is_pure,
    parts_are_counted,
    evaluation_is_repeatable,
    half_precision_preserves_the_loss,
    eight_rows_are_overfitted,
    task_does_not_change_the_model,
    the_formula_gives_the_counted_flops,
)


def _added(found: Iterator[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for one in found:
        for name, value in one.items():
            total[name] = total[name] + value if name in total else value
    return total


def _near(found: Any, expected: Any) -> bool:
    found, expected = (torch.as_tensor(value).detach().double() for value in (found, expected))
    return bool((found - expected).norm() <= CLOSE * max(1.0, float(expected.norm())))


def _target_indices(batch: Batch) -> list[list[int]]:
    """The positions of the targets of each row; all if the batch has no `target_positions`."""
    found = torch.ones(batch.inputs.ids.shape, dtype=torch.bool)
    if batch.target_positions is not None:
        found = torch.zeros_like(found).flatten().index_fill(0, batch.target_positions, True).view_as(found)
    return [row.nonzero().flatten().tolist() for row in found]


def _unpadded(batch: Batch) -> list[tuple[list[int], ...]]:
    """The ids of each row without padding: inputs, and the source if there is one."""
    sides = [one for one in (batch.inputs, batch.source) if one is not None]
    return [tuple(side.ids[row][_real(side)[row]].tolist() for side in sides) for row in range(len(batch.inputs.ids))]


def _real(tokens: Tokens) -> Tensor:
    """Mask of the tokens that are not padding (B, L)."""
    given = tokens.token_positions
    return torch.ones_like(tokens.ids, dtype=torch.bool) if given is None or given.segments is None else given.segments != 0


def _other_padding(rows: Rows) -> Rows:
    """The same rows with a plain token as padding."""
    assert rows.segments is not None
    return replace(rows, ids=np.where(rows.segments == 0, FIRST_PLAIN + 5, rows.ids))


def cases(settings: ObjectiveSettings, rows: Sequence[Row] | None = None) -> list[Case]:
    """All checks for an objective of these settings; rows: for a dataset that minitf does not include."""
    return cases_of(CONTRACT, settings if rows is None else Given(settings, rows))

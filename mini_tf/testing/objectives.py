"""The contract of objectives: micro-batches, padding, determinism by row key, hidden and counted targets, overfitting.

Each check builds the objective with the smallest model that fits, and eight rows of its dataset.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.model import Model
from mini_tf.nn.objective_network import objective_tensors, trained_module
from mini_tf.objectives import NATS_PER_TOKEN, LossSums, ObjectiveSettings, Task
from mini_tf.recipe.kind_settings import changed_training_keys
from mini_tf.recipe.metrics import metrics_of
from mini_tf.recipe.sections import Train
from mini_tf.testing import Case, cases_of, checks_of
from mini_tf.testing.tiny.datasets import Row
from mini_tf.testing.tiny.objectives import (
    N_ROWS,
    Given,
    Tried,
    added,
    differ,
    equal,
    gradients_of,
    metrics_and_counts,
    near,
    other_padding,
    target_indices,
    tiny_objective,
    undeclared,
    unpadded,
    with_other_tokens,
)

STEPS = 400
"""Maximum number of steps to overfit eight rows."""


def micro_batches_change_nothing(tried: Tried) -> None:
    """Any split into micro-batches gives the same sums, counts, metrics and gradients of the step."""
    case, results = tiny_objective(tried), list[dict[str, Any]]()
    for size in (N_ROWS, 3, 1):
        case.task.zero_grad()
        done = [case.sums(rows) for rows in case.cut(size)]
        counts = added(batch.counts for batch, _ in done)
        parts = added(sums.parts for _, sums in done)
        case.loss(parts, counts).backward()
        metrics = added(metrics_and_counts(sums) for _, sums in done)
        results.append({"counts": counts, "parts": parts, "metrics": metrics, "gradients": gradients_of(case.task)})
    for other in results[1:]:
        for quantity, whole in results[0].items():
            assert other[quantity].keys() == whole.keys(), f"{quantity}: names must not depend on the micro-batches"
            for name, value in whole.items():
                assert near(other[quantity][name], value), f"{quantity}: {name} depends on the micro-batches"


def padding_changes_nothing(tried: Tried) -> None:
    """Padding is not a target and not counted, and its content has no effect."""
    case = tiny_objective(tried)
    batch = case.objective.prepare(case.rows)
    real = None if batch.inputs.token_positions is None else batch.inputs.token_positions.segments
    assert real is not None, "the batch must have segments that mark padding"
    assert batch.counts["tokens"] == int((real != 0).sum()), "counts: tokens must be all input tokens without padding"
    message = "padding must not be a target"
    assert batch.target_positions is None or bool((real.flatten()[batch.target_positions] != 0).all()), message
    other = replace(
        other_padding(case.rows), source=None if case.rows.source is None else other_padding(case.rows.source)
    )
    for training in (True, False):
        (_, expected), (_, sums) = case.sums(training=training), case.sums(other, training)
        for name, part in expected.parts.items():
            assert near(sums.parts[name], part), f"{name} must not depend on padding"


def ignored_targets_change_nothing(tried: Tried) -> None:
    """`Task.pad_targets` changes neither losses, metrics nor gradients in training."""
    case = tiny_objective(tried)
    if not isinstance(case.task, Task):
        return
    for parts in (1, 3):
        batch, results = case.objective.prepare(case.rows), list[dict[str, Any]]()
        for variant in (batch, case.task.pad_targets(batch, parts)):
            case.task.zero_grad()
            sums = case.task.train()(variant, None)
            case.loss(sums.parts, batch.counts).backward()
            gradients = {f"the gradient of {name}": gradient for name, gradient in gradients_of(case.task).items()}
            results.append({**sums.parts, **metrics_and_counts(sums), **gradients})
        for name, value in results[0].items():
            assert near(results[1][name], value), f"{name} must not depend on ignored targets"


def prepare_is_pure(tried: Tried) -> None:
    """`prepare` changes neither rows nor random generators; its random choices depend only on a row's key."""
    case = tiny_objective(tried)
    for prepare in (case.objective.prepare, case.objective.prepare_evaluation):
        arrays = {name: value for name, value in vars(case.rows).items() if isinstance(value, np.ndarray)}
        before = {name: array.copy() for name, array in arrays.items()}
        generators = torch.get_rng_state(), _numpy_state()
        whole, again = prepare(case.rows), prepare(case.rows)
        single = [prepare(rows) for rows in case.cut(1)]
        for name, array in arrays.items():
            message = f"prepare must not change rows.{name}"
            assert np.array_equal(array, before[name], equal_nan=array.dtype.kind == "f"), message
        assert torch.equal(torch.get_rng_state(), generators[0]), "prepare must not use torch's global generator"
        assert _numpy_state() == generators[1], "prepare must not use numpy's global generator"
        for way, batches in (("prepared twice", [again]), ("prepared one by one", single)):
            assert unpadded(whole) == [row for batch in batches for row in unpadded(batch)], (
                f"{way}: inputs must be equal"
            )
            assert equal(whole.labels, torch.cat([batch.labels for batch in batches])), f"{way}: labels must be equal"
            targets = [target_indices(batch) for batch in (whole, *batches)]
            assert targets[0] == [row for rows in targets[1:] for row in rows], f"{way}: targets must be equal"
            assert whole.counts == added(batch.counts for batch in batches), f"{way}: counts must be equal"
        for name, draw in whole.extras.items():
            assert equal(draw, again.extras[name]), f"draws: {name} must be equal when prepared twice"


def _numpy_state() -> tuple[bytes, int]:
    """What numpy's global generator draws next depends on."""
    state: Any = np.random.get_state()
    return state[1].tobytes(), int(state[2])


@torch.no_grad()
def parts_are_counted(tried: Tried) -> None:
    """Every part of the loss has a count, which is 0 only if the part is; metrics have the declared names."""
    case = tiny_objective(tried)
    settings = case.objective.settings
    declared, accumulator = metrics_of(settings), case.metric_accumulator
    unknown = case.objective.weights.keys() - case.sums()[1].parts.keys()
    assert not unknown, f"weights must be those of parts of the loss: {sorted(unknown)} are not"
    for rows in (case.rows, *case.cut(1)):
        batch, sums = case.sums(rows, training=False)
        assert sums.parts, "the loss must have a part"
        for name, part in sums.parts.items():
            assert part.dim() == 0, f"{name} must be a scalar"
            assert name in batch.counts, f"counts: there must be one for the part {name} of the loss"
            assert batch.counts[name] or not part, f"counts: {name} is 0, but the part of the loss is {float(part):g}"
            most = len(batch.labels) if "rows" in settings.PREDICTS and name != "penalty" else math.inf
            assert batch.counts[name] <= most, f"counts: {name} must be at most {most}, one a row: {batch.counts[name]}"
        assert sums.metrics.keys() <= {*declared}, f"METRICS must declare {sorted(sums.metrics.keys() - {*declared})}"
        message = "the denominator of a metric must not be negative"
        assert all(float(many) >= 0 for _, many in sums.metrics.values()), message
        assert (sums.outputs is None) or accumulator is not None, "outputs need a metric accumulator"
        if accumulator is not None:
            assert sums.outputs is not None, "a metric accumulator needs outputs"
            accumulator.add(batch, sums.outputs)
    scores = {} if accumulator is None else accumulator.scores()
    assert all(np.isfinite(score) for score in scores.values()), f"metrics must be finite: {scores}"
    unknown_scores = undeclared(scores, declared)
    assert not unknown_scores, f"METRICS must declare {unknown_scores}"


def evaluation_is_repeatable(tried: Tried) -> None:
    """In eval mode there is no dropout and no randomness."""
    evaluations: list[LossSums] = []
    plain, dropping = (tiny_objective(tried, dropout=dropout) for dropout in (0.0, 0.5))
    for case in (plain, plain, dropping):
        torch.manual_seed(len(evaluations))
        evaluations.append(case.sums(training=False)[1])
    for other in evaluations[1:]:
        assert other.parts.keys() == evaluations[0].parts.keys()
        message = "in eval mode the loss must be deterministic"
        assert all(torch.equal(other.parts[name], part) for name, part in evaluations[0].parts.items()), message
        outputs = [sums.outputs for sums in (other, evaluations[0]) if sums.outputs is not None]
        assert not outputs or torch.equal(*outputs), "in eval mode outputs must be deterministic"


@torch.no_grad()
def training_and_evaluation_have_the_same_loss(tried: Tried) -> None:
    """Without dropout, unless a setting of TRAINING_KEYS is used."""
    case = tiny_objective(tried)
    settings = case.objective.settings
    if changed_training_keys(settings):
        return
    batch, trained = case.sums(training=True)
    evaluated = case.task.eval()(batch, None)
    for name, part in trained.parts.items():
        assert name in evaluated.parts, f"an evaluation must have the part {name} of the loss"
        message = (
            f"{name} must be the same in training and in evaluation, or TRAINING_KEYS must name the setting that"
            " changes it"
        )
        assert near(evaluated.parts[name], part), f"{message}: {part:g}, {evaluated.parts[name]:g}"


@torch.no_grad()
def equal_logits_have_the_loss_log_v(tried: Tried) -> None:
    """The first parts of the loss of a model that predicts every token with the same probability, and their counts."""
    case = tiny_objective(tried)
    if case.objective.settings.LOSS_UNIT != NATS_PER_TOKEN:
        return
    for parameter in case.model.head.parameters():
        parameter.zero_()
    for training in (True, False):
        batch, sums = case.sums(training=training)
        parts = [name for name in sums.parts if name != "penalty"][: case.objective.token_parts]
        count, log_v = sum(batch.counts[part] for part in parts), math.log(case.vocabulary.size)
        message = f"counts: {', '.join(parts)} must be the {len(batch.labels)} targets, not {count}"
        assert count == len(batch.labels), message
        for part in parts:
            mean = float(sums.parts[part]) / batch.counts[part]
            message = f"with equal logits {part} must be log V = {log_v:g} per target, not {mean:g}"
            assert abs(mean - log_v) < 1e-4, message


def inputs_hide_the_targets(tried: Tried) -> None:
    """What a token is predicted from does not depend on it, except for the share that `visible_targets` declares."""
    case = tiny_objective(tried)
    settings, rows = case.objective.settings, case.rows
    share = case.objective.visible_targets
    if "tokens" not in settings.PREDICTS or share == 1 or any(settings.rules_with(case.model_settings, Train(steps=1))):
        return  # with rules the objective refuses this model
    for training in (True, False):
        before, hidden = case.predictions(rows, training)
        n_visible, n_targets = 0, 0
        if hidden is None:
            return
        for position in range(rows.ids.shape[1]):
            changed = np.zeros(rows.ids.shape, bool)
            changed[:, position] = True
            after, other = case.predictions(with_other_tokens(rows, changed, case.vocabulary), training)
            assert other is not None
            assert other.shape == hidden.shape, "the number of targets must not depend on the tokens"
            is_changed = after.labels != before.labels
            n_visible += int((is_changed & differ(hidden, other)).sum())
            n_targets += int(is_changed.sum())
        most = share * n_targets + 4 * (share * (1 - share) * n_targets) ** 0.5
        assert n_visible <= most, (
            f"{n_visible} of {n_targets} targets are visible in the inputs; visible_targets declares {share:g}"
        )


def packed_documents_are_apart(tried: Tried) -> None:
    """No target of a document of a packed row (`data.pack: docs`) depends on another document."""
    case = tiny_objective(tried)
    model = case.model_settings
    if case.objective.settings.DATASET != "text" or not (
        model.PACKS and all("packing" in mixer.supports for mixer in model.all_mixers())
    ):
        return
    segments = np.ones_like(case.rows.ids) if case.rows.segments is None else case.rows.segments.copy()
    middle = segments.shape[1] // 2
    segments[:, middle:] *= 2
    ids = case.rows.ids.copy()
    ids[:, [0, middle]] = case.vocabulary.separator
    rows = replace(case.rows, ids=ids, segments=segments)
    for training in (True, False):
        before, hidden = case.predictions(rows, training)
        if hidden is None:
            return
        positions = before.inputs.token_positions
        assert positions is not None and positions.segments is not None and int(positions.segments.max()) == 2, (  # noqa: PT018
            "the segments of the inputs must be those of the rows"
        )
        of_targets = positions.segments.flatten()
        of_targets = of_targets if before.target_positions is None else of_targets[before.target_positions]
        for document in (1, 2):
            _, other = case.predictions(with_other_tokens(rows, segments == document, case.vocabulary), training)
            assert other is not None
            kept = of_targets != document
            message = f"a target must not depend on document {document} of its row, another one"
            assert not (differ(hidden, other) & kept).any(), message


@torch.no_grad()
def the_penalty_of_a_mixer_is_kept(tried: Tried) -> None:
    """The penalties of all forward passes of a model are the part `penalty` of the loss, which tokens count."""
    case, n_passes = tiny_objective(tried), list[int]()

    def penalized(module: nn.Module, inputs: object, output: ForwardOutput) -> ForwardOutput:
        n_passes.append(1)
        penalty = 0 if output.penalty is None else output.penalty
        return output._replace(penalty=penalty + torch.tensor(7.0, dtype=torch.float64))

    (_, plain), models = case.sums(), [module for module in case.task.modules() if isinstance(module, Model)]
    for model in models:
        model.register_forward_hook(penalized)
    batch, sums = case.sums()
    assert "penalty" in sums.parts, "the penalty of a model, which some mixers have, must be a part of the loss"
    added = sums.parts["penalty"] - plain.parts.get("penalty", 0)
    assert near(added, 7.0 * len(n_passes)), (
        f"penalty must be the sum of those of all passes: {added:g}, {7 * len(n_passes)}"
    )
    assert batch.counts.get("penalty") == batch.counts["tokens"], "counts: penalty must be the number of tokens"


def half_precision_preserves_the_loss(tried: Tried) -> None:
    """Under bf16 autocast losses are summed in fp32 and are about the same."""
    case = tiny_objective(tried)
    case.task.float()
    for training in (True, False):
        _, exact = case.sums(training=training)
        with torch.autocast("cpu", torch.bfloat16):
            _, rough = case.sums(training=training)
        for name, part in exact.parts.items():
            assert rough.parts[name].dtype == torch.float32, (
                f"{name} must be summed in fp32, not in {rough.parts[name].dtype}"
            )
            assert abs(rough.parts[name] - part) <= 0.2 * abs(part) + 0.1, (
                f"{name} must be about {part:g} in bf16: {rough.parts[name]:g}"
            )


def eight_rows_are_overfitted(tried: Tried) -> None:
    """AdamW reduces the loss on eight rows to a tenth, and every parameter has a gradient at some step."""
    case = tiny_objective(tried, d_model=32)
    trained = trained_module(case.model, case.task)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2, weight_decay=0.0)
    without_gradient, losses = {name for name, _ in trained.named_parameters()}, list[float]()
    while len(losses) <= STEPS and not (len(losses) > 2 and losses[-1] < 0.1 * losses[0]):
        batch, sums = case.sums()
        loss = case.loss(sums.parts, batch.counts)
        losses.append(loss.item())
        loss.backward()
        without_gradient -= {
            name for name, p in trained.named_parameters() if p.grad is not None and bool(p.grad.any())
        }
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < 0.1 * losses[0], (
        f"after {STEPS} steps the loss must be a tenth of {losses[0]:g}: {losses[-1]:g}"
    )
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
    message = "the task must not change the model"
    assert all(torch.equal(tensor, before[name]) for name, tensor in case.model.weights().items()), message
    message = "the same seed must give the same weights"
    assert all(torch.equal(tensor, drawn[1][name]) for name, tensor in drawn[0].items()), message


CONTRACT = checks_of(__name__)


def cases(settings: ObjectiveSettings, rows: Sequence[Row] | None = None) -> list[Case]:
    """All checks for an objective of these settings; rows: for a dataset that minitf does not include."""
    return cases_of(CONTRACT, settings if rows is None else Given(settings, rows))

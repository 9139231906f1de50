"""Few shapes occur in captured steps: padding of rows and ignored targets change no step by more than last bits."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from test_captured_steps import Steps, steps, training
from torch.testing import assert_close

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.packing import Shape
from mini_tf.jobs.parts import Parts
from mini_tf.objectives import Task
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing.tiny.objectives import FIRST_PLAIN, PLAIN_END, TinyObjective, near, tiny_objective
from mini_tf.training import captured_steps
from mini_tf.training.captured_steps import LENGTHS, pad_rows, with_recurring_shapes
from mini_tf.training.feed import Feed
from mini_tf.training.machine.device import Setup
from mini_tf.training.plan import RowPlan
from mini_tf.training.schedule import Horizon
from mini_tf.training.training import Training

__all__ = ["steps"]  # a fixture

CONTEXT, STEPS = 16, 20


class Texts:
    """Texts of 5 to 16 tokens, padded to the longest of a step."""

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        lengths = np.array([np.random.default_rng(int(row)).integers(5, CONTEXT + 1) for row in rows])[:, None]
        ids = np.stack([np.random.default_rng(int(row)).integers(FIRST_PLAIN, PLAIN_END, CONTEXT) for row in rows])
        is_text = np.arange(lengths.max()) < lengths
        return Rows(
            np.where(is_text, ids[:, : lengths.max()], 0), keys, None if is_text.all() else is_text.astype(np.int64)
        )


def run(case: TinyObjective, padded: bool) -> tuple[Training, list[Batch]]:
    """Twenty steps of sixteen texts, and the batches that are prepared in them."""
    prepared = list[Batch]()
    prepare = with_recurring_shapes(case.objective.prepare, case.task, CONTEXT, 0) if padded else case.objective.prepare

    def noted(rows: Rows) -> Batch:
        prepared.append(prepare(rows))
        return prepared[-1]

    plain = training(case.task)
    feed = Feed(RowPlan(400, 16, 5), Texts(), noted, 16)
    schedule = replace(plain.schedule, horizon=Horizon(steps=STEPS))
    return replace(plain, feed=feed, schedule=schedule, weights=case.objective.weights), prepared


def shapes_of(batches: list[Batch]) -> set[tuple[Any, ...]]:
    return {(batch.inputs.ids.shape, batch.labels.shape, batch.inputs.token_positions is None) for batch in batches}


@pytest.mark.parametrize("kind", ["masked", "replaced_token"])
def test_a_masked_run_has_few_graphs_and_the_weights_of_eager_steps(kind: str, steps: Steps) -> None:
    """The weights up to the order of sums, as products have more rows; in float64."""
    plain, unpadded = run(tiny_objective(settings_of("objectives", kind)()), padded=False)
    recurring, batches = run(tiny_objective(settings_of("objectives", kind)()), padded=True)
    (eager, expected), (captured, tensors) = steps(plain, 0), steps(recurring)
    assert len(shapes_of(unpadded)) > 10
    assert len(shapes_of(batches)) == 3
    assert steps.tapes.recorded == 2 * 3  # of the two shapes that occur often: pass, norm and update
    assert steps.tapes.replayed > STEPS
    assert steps.warnings == []
    assert [batch.counts for batch in batches] == [batch.counts for batch in unpadded]
    assert [report.losses for report in captured] == [pytest.approx(report.losses, rel=1e-9) for report in eager]
    assert_close(tensors, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", listing("objectives"))
def test_longer_rows_and_ignored_targets_change_no_loss(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = tiny_objective(settings_of("objectives", kind)())
    context = case.rows.ids.shape[1] - case.objective.lookahead + 5
    monkeypatch.setattr(captured_steps, "LENGTHS", 1)
    monkeypatch.setattr(captured_steps, "TARGETS", 1)
    prepare = with_recurring_shapes(case.objective.prepare, case.task, context, case.objective.lookahead)
    plain, padded = case.objective.prepare(case.rows), prepare(case.rows)
    assert padded.counts == plain.counts
    is_longer = padded.inputs.ids.shape[1] == context
    assert is_longer == (kind not in ("contrastive", "denoising", "hybrid", "next_token", "prefix"))
    assert padded.source is None or (padded.source.ids.shape[1] == context) == is_longer
    expected, sums = (case.task.train()(batch, None) for batch in (plain, padded))
    for name, part in expected.parts.items():
        assert near(sums.parts[name], part), name


@pytest.mark.parametrize("graphs", [False, True])
def test_rows_and_targets_of_a_run_are_padded_for_graphs_alone(graphs: bool) -> None:
    case = tiny_objective(settings_of("objectives", "masked")())
    packing = SimpleNamespace(shape=Shape(context=20))
    parts: Any = SimpleNamespace(setup=Setup(graphs=graphs), objective=case.objective, task=case.task, train=packing)
    batch, plain = Parts.prepare.fget(parts)(case.rows), case.objective.prepare(case.rows)  # type: ignore[attr-defined]
    assert batch.inputs.ids.shape == (8, 9 if graphs else 8)
    assert len(batch.labels) == (9 if graphs else 8)
    assert len(plain.labels) == 8


@pytest.mark.parametrize("context", [1, 7, 16, 100])
@pytest.mark.parametrize("lookahead", [0, 1])
def test_rows_have_few_lengths_up_to_the_context(context: int, lookahead: int) -> None:
    """Rows of tags: text with a lookahead is not padded."""
    lengths = set[int]()
    for length in range(1, context + 1):
        ids = np.ones((2, length + lookahead), np.int64)
        rows = Rows(ids, np.zeros(2, np.uint64), labels=ids.astype(np.float32))
        padded = pad_rows(rows, context, lookahead)
        lengths.add(padded.ids.shape[1] - lookahead)
        assert length <= padded.ids.shape[1] - lookahead <= min(context, length + context // LENGTHS)
        assert padded.segments is None or padded.segments.sum() == rows.ids.size
    assert len(lengths) <= LENGTHS
    assert max(lengths) == context
    assert pad_rows(replace(rows, labels=None), context, 1).segments is None


def test_the_number_of_targets_is_a_multiple_of_a_share_of_the_positions() -> None:
    case = tiny_objective(settings_of("objectives", "masked")())
    assert isinstance(case.task, Task)
    sizes = set[int]()
    for n in range(129):
        positions = torch.randperm(128, generator=torch.Generator().manual_seed(n))[:n]
        batch = case.objective.prepare(case.rows)
        ids = torch.zeros(8, 16, dtype=torch.long)
        padded = case.task.pad_targets(
            replace(batch, inputs=replace(batch.inputs, ids=ids), target_positions=positions, labels=positions), 8
        )
        assert padded.target_positions is not None
        assert torch.equal(padded.target_positions[:n], positions)
        assert len(padded.target_positions.unique()) == len(padded.labels)
        assert n <= len(padded.labels) <= max(n, 1) + 15
        sizes.add(len(padded.labels))
    assert len(sizes) == 8

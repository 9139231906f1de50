"""When evaluation, saving and a line are due."""

import pytest

from mini_tf.recipe import reading
from mini_tf.recipe.recipe import Recipe
from mini_tf.training.due import EVALUATIONS, SPACING, SPACING_SECONDS, Due, evaluated_every, evaluations_within, step_work
from mini_tf.training.loop import Report
from mini_tf.training.schedule import Horizon


def recipe_of(*overrides: str) -> Recipe:
    return reading.read("gpt-char", overrides).recipe


def report(step: int, seconds: float = 0.0) -> Report:
    return Report(step=step, seconds=seconds, loss=1.0, losses={}, metrics={}, lr=0.1, grad_norm=1.0)


def due_steps(due: Due, steps: int, seconds_each: float = 0.0) -> list[int]:
    return [step for step in range(1, steps + 1) if due.evaluation(report(step, step * seconds_each))]


def test_a_long_run_is_evaluated_ten_times() -> None:
    assert due_steps(Due(recipe_of(), Horizon(steps=1000), SPACING), 1000) == list(range(100, 1001, 100))


def test_between_two_evaluations_of_a_light_model_lies_enough_work() -> None:
    assert due_steps(Due(recipe_of(), Horizon(steps=1000), SPACING / 400), 1000) == [400, 800]
    assert due_steps(Due(recipe_of(), Horizon(steps=1000), SPACING / 5000), 1000) == []


def test_steps_whose_work_does_not_divide_the_spacing_are_rounded_up_so_that_enough_lies_between() -> None:
    assert [evaluated_every(recipe_of(), 10, SPACING / n) for n in (2.0, 2.5, 3.0)] == [2, 3, 3]


@pytest.mark.parametrize("given", ["eval.every_steps=7", "eval.patience=2"])
def test_whoever_says_when_or_counts_evaluations_has_them_however_light_the_model(given: str) -> None:
    every = 7 if "every" in given else 3
    assert evaluated_every(recipe_of(given), 30, SPACING / 5000) == every


def test_where_the_clock_decides_evaluations_are_equal_shares_of_the_time_and_seconds_apart() -> None:
    assert evaluations_within(recipe_of(), 1000.0) == EVALUATIONS
    assert evaluations_within(recipe_of(), 3 * SPACING_SECONDS) == 3
    assert evaluations_within(recipe_of(), 1.0) == 1
    assert evaluations_within(recipe_of("eval.patience=2"), 1.0) == EVALUATIONS
    due = Due(recipe_of("train.time=15s"), Horizon(seconds=3 * SPACING_SECONDS), 1.0)
    assert due_steps(due, 150, SPACING_SECONDS / 50) == [50, 100, 150]


def test_no_run_is_evaluated_more_than_ten_times_before_its_end() -> None:
    assert evaluated_every(recipe_of(), 1005, SPACING) == 101
    assert evaluated_every(recipe_of(), 3, SPACING) == 1


def test_a_log_has_a_line_early_and_then_thirty_of_equal_shares() -> None:
    due = Due(recipe_of(), Horizon(steps=3000), SPACING)
    assert [step for step in range(1, 3001) if due.line(report(step))] == [10, *range(100, 3001, 100)]
    due = Due(recipe_of(), Horizon(steps=3010), SPACING)
    assert [step for step in range(1, 400) if due.line(report(step))] == [10, 101, 202, 303]
    due = Due(recipe_of("train.time=60s"), Horizon(seconds=60.0), SPACING)
    assert [step for step in range(1, 601) if due.line(report(step, step / 10))] == [10, *range(20, 601, 20)]


def test_under_the_clock_whatever_is_due_is_counted_by_itself() -> None:
    due, found = Due(recipe_of("train.time=60s"), Horizon(seconds=60.0), 1.0), []
    for step in range(1, 61):
        now = report(step, float(step))
        found.append((due.line(now), due.evaluation(now), due.checkpoint(now)))
    assert [[step for step, one in enumerate(found, 1) if one[what]] for what in (1, 2)] == [[*range(6, 61, 6)]] * 2
    assert [step for step, one in enumerate(found, 1) if one[0]] == [*range(2, 61, 2)]


def test_checkpoints_go_with_evaluations_or_by_their_own_count() -> None:
    due = Due(recipe_of(), Horizon(steps=100), SPACING)
    assert [step for step in range(1, 101) if due.checkpoint(report(step))] == list(range(10, 101, 10))
    due = Due(recipe_of("checkpoint.every_steps=33"), Horizon(steps=100), SPACING)
    assert [step for step in range(1, 101) if due.checkpoint(report(step))] == [33, 66, 99]


def test_the_work_of_a_step_is_six_operations_a_weight_of_a_product_and_a_token() -> None:
    recipe = recipe_of("model.d_model=8", "model.n_layers=1", "model.n_heads=2", "train.batch_size=3", "train.context=5")
    model = recipe.model.build(20, 5)
    weights = 8 * 24 + 8 * 8 + 8 * 32 + 32 * 8 + 8 * 20  # qkv, out, up, down, head; the embedding is looked up
    assert step_work(model, recipe) == 6 * weights * 15

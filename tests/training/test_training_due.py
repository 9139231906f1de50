"""When evaluation, saving and a line are due."""

import pytest

from mini_tf.recipe import reading
from mini_tf.recipe.recipe import Recipe
from mini_tf.training.due import (
    EVALUATIONS,
    FEWEST,
    SHARE,
    SPACING,
    SPACING_SECONDS,
    Due,
    EvaluationSchedule,
    step_flops,
)
from mini_tf.training.loop import Report
from mini_tf.training.schedule import Horizon


def recipe_of(*overrides: str) -> Recipe:
    return reading.read("quickstart", overrides).recipe


def evaluations(
    *overrides: str, work: float = SPACING, step_tokens: float = 1e6, held_out: int = 1000
) -> EvaluationSchedule:
    """By default of so much training on so little held-out text that nothing limits them."""
    return EvaluationSchedule(recipe_of(*overrides), work, step_tokens, held_out)


def due(*overrides: str, horizon: Horizon, work: float = SPACING) -> Due:
    return Due(evaluations(*overrides, work=work), horizon)


def report(step: int, seconds: float = 0.0) -> Report:
    return Report(step=step, seconds=seconds, loss=1.0, losses={}, metrics={}, lr=0.1, grad_norm=1.0)


def due_steps(due: Due, steps: int, seconds_each: float = 0.0) -> list[int]:
    return [step for step in range(1, steps + 1) if due.evaluation(report(step, step * seconds_each))]


def test_a_long_run_is_evaluated_ten_times() -> None:
    assert due_steps(due(horizon=Horizon(steps=1000), work=SPACING), 1000) == list(range(100, 1001, 100))


def test_between_two_evaluations_of_a_light_model_lies_enough_work() -> None:
    assert due_steps(due(horizon=Horizon(steps=1000), work=SPACING / 400), 1000) == [400, 800]
    assert due_steps(due(horizon=Horizon(steps=1000), work=SPACING / 5000), 1000) == []


def test_steps_whose_work_does_not_divide_the_spacing_are_rounded_up_so_that_enough_lies_between() -> None:
    assert [evaluations(work=SPACING / n).interval(10) for n in (2.0, 2.5, 3.0)] == [2, 3, 3]


@pytest.mark.parametrize("given", ["eval.every_steps=7", "eval.patience=2"])
def test_whoever_says_when_or_counts_evaluations_has_them_however_light_the_model(given: str) -> None:
    every = 7 if "every" in given else 3
    assert evaluations(given, work=SPACING / 5000).interval(30) == every


def test_where_the_clock_decides_evaluations_are_equal_shares_of_the_time_and_seconds_apart() -> None:
    assert evaluations().count_within(1000.0) == EVALUATIONS
    assert evaluations().count_within(3 * SPACING_SECONDS) == 3
    assert evaluations().count_within(1.0) == 1
    assert evaluations("eval.patience=2").count_within(1.0) == EVALUATIONS
    one = due("train.time=15s", horizon=Horizon(seconds=3 * SPACING_SECONDS), work=1.0)
    assert due_steps(one, 150, SPACING_SECONDS / 50) == [50, 100, 150]


def test_a_run_that_is_evaluated_once_has_all_the_held_out_text() -> None:
    """As one whose model is so heavy that its time may be over after the first step."""
    often = evaluations("eval.every_steps=1", work=1e6 * SPACING, held_out=10**9)
    assert [often.count(horizon) for horizon in (Horizon(seconds=1.0), Horizon(steps=2))] == [1, 2]
    assert [often.tokens(horizon) is None for horizon in (Horizon(seconds=1.0), Horizon(steps=2))] == [True, False]


def test_no_run_is_evaluated_more_than_ten_times_before_its_end() -> None:
    assert evaluations().interval(1005) == 101
    assert evaluations().interval(3) == 1


def test_a_log_has_a_line_early_and_then_thirty_of_equal_shares() -> None:
    one = due(horizon=Horizon(steps=3000), work=SPACING)
    assert [step for step in range(1, 3001) if one.line(report(step))] == [1, 10, *range(100, 3001, 100)]
    one = due(horizon=Horizon(steps=3010), work=SPACING)
    assert [step for step in range(1, 400) if one.line(report(step))] == [1, 10, 101, 202, 303]
    one = due("train.time=60s", horizon=Horizon(seconds=60.0))
    assert [step for step in range(1, 601) if one.line(report(step, step / 10))] == [1, 10, *range(20, 601, 20)]


def test_under_the_clock_whatever_is_due_is_counted_by_itself() -> None:
    one, found = due("train.time=60s", horizon=Horizon(seconds=60.0), work=1.0), []
    for step in range(1, 61):
        now = report(step, float(step))
        found.append((one.line(now), one.evaluation(now), one.checkpoint(now)))
    assert [[step for step, told in enumerate(found, 1) if told[what]] for what in (1, 2)] == [[*range(6, 61, 6)]] * 2
    assert [step for step, told in enumerate(found, 1) if told[0]] == [1, *range(2, 61, 2)]


def test_checkpoints_go_with_evaluations_or_by_their_own_count() -> None:
    one = due(horizon=Horizon(steps=100), work=SPACING)
    assert [step for step in range(1, 101) if one.checkpoint(report(step))] == list(range(10, 101, 10))
    one = due("checkpoint.every_steps=33", horizon=Horizon(steps=100))
    assert [step for step in range(1, 101) if one.checkpoint(report(step))] == [33, 66, 99]


def test_the_work_of_a_step_is_six_operations_a_weight_of_a_product_and_a_token() -> None:
    recipe = recipe_of(
        "model.d_model=8", "model.n_layers=1", "model.n_heads=2", "train.batch_size=3", "train.context=5"
    )
    model = recipe.model.build(20, 5)
    weights = 8 * 24 + 8 * 8 + 8 * 32 + 32 * 8 + 8 * 20  # qkv, out, up, down, head; the embedding is looked up
    assert step_flops(model, recipe) == 6 * weights * 15


@pytest.mark.parametrize("steps", [210, 1000, 20_000])
@pytest.mark.parametrize("held_out", [60_000, 1_260_000, 30_000_000])
def test_all_evaluations_on_the_way_read_a_share_of_what_is_trained_on(steps: int, held_out: int) -> None:
    horizon, one = Horizon(steps=steps), evaluations(step_tokens=3072, held_out=held_out)
    tokens, count = one.tokens(horizon) or held_out, one.count(horizon)
    assert 1 <= count <= EVALUATIONS
    assert tokens >= FEWEST
    assert tokens * count <= SHARE * steps * 3072
    assert one.tokens(horizon) is None or tokens < held_out


def test_of_a_run_too_short_for_samples_all_held_out_text_is_read_once_at_the_end() -> None:
    horizon, one = Horizon(steps=20), evaluations(step_tokens=384, held_out=10**6)
    assert (one.count(horizon), one.tokens(horizon)) == (1, None)


def test_what_the_recipe_says_of_samples_is_done() -> None:
    horizon = Horizon(steps=1000)
    assert evaluations("eval.tokens=null", step_tokens=64, held_out=10**6).tokens(horizon) is None
    assert evaluations("eval.tokens=500", step_tokens=64, held_out=10**6).tokens(horizon) == 500
    assert evaluations("eval.tokens=500", held_out=500).tokens(horizon) is None
    asked = evaluations("eval.every_steps=2", step_tokens=64, held_out=10**6)
    assert (asked.interval(1000), asked.tokens(horizon)) == (2, FEWEST)


def test_where_the_clock_decides_the_sample_depends_on_the_work_and_not_on_the_machine() -> None:
    horizon = Horizon(seconds=600.0)
    light, heavy = (evaluations(work=SPACING * by, step_tokens=3072, held_out=10**7) for by in (0.01, 10.0))
    assert light.tokens(horizon) == int(SHARE * 12_000 * 3072 / EVALUATIONS)
    assert (heavy.count(horizon), heavy.tokens(horizon)) == (1, None)


def test_of_a_single_evaluation_nothing_but_all_is_read() -> None:
    assert evaluations("eval.tokens=500", "eval.every_steps=1000", held_out=10**6).tokens(Horizon(steps=10)) is None


def test_every_steps_null_is_one_evaluation_after_the_last_step() -> None:
    """Of all validation tokens; in a run with a time limit none is due on the way."""
    never, horizon = "eval.every_steps=null", Horizon(steps=1000)
    assert due_steps(due(never, horizon=horizon), 1000) == [1000]
    assert (evaluations(never).count(horizon), evaluations(never, held_out=10**7).tokens(horizon)) == (1, None)
    assert due_steps(due(never, "train.time=15s", horizon=Horizon(seconds=15)), 150, 0.1) == []
    assert evaluations(never).count(Horizon(seconds=600.0)) == 1

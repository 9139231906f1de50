"""Learning rates and horizons against formulas written down elsewhere; their contract is in test_schedules.py."""

import math
from typing import Any

import pytest

from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.sections import Train
from mini_tf.schedules import cosine, linear
from mini_tf.training.schedule import Horizon, TrainingSchedule, horizon_of, lr_factor


def rates(n_steps: int, kind: str, **settings: object) -> list[float]:
    schedule: Any = settings_of("schedules", kind)(**settings)
    return [lr_factor(schedule, step, n_steps) for step in range(n_steps)]


def test_the_curves_are_the_textbook_ones_after_the_warmup() -> None:
    t = [step / 8 for step in range(8)]
    assert rates(8, kind="constant", warmup=0) == [1.0] * 8
    assert rates(8, kind="linear", warmup=0) == pytest.approx([1 - x for x in t])
    assert rates(8, kind="linear", warmup=0, floor=0.1) == pytest.approx([1 - 0.9 * x for x in t])
    assert rates(8, kind="cosine", warmup=0) == pytest.approx([math.cos(math.pi * x / 2) ** 2 for x in t])
    assert rates(8, kind="wsd", warmup=0, decay=0.5) == pytest.approx([1, 1, 1, 1, 1, 0.75, 0.5, 0.25])


@pytest.mark.parametrize("decay", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_wsd_falls_in_a_line_over_the_last_share_of_the_steps(decay: float, floor: float) -> None:
    """Counted from the end, where the rate would be the floor."""
    to_go = [(20 - step) / (decay * 20) for step in range(20)]
    expected = [1.0 if share >= 1 else floor + (1 - floor) * share for share in to_go]
    assert rates(20, kind="wsd", warmup=0, decay=decay, floor=floor) == pytest.approx(expected)


def test_wsd_whose_warmup_is_longer_than_what_is_before_the_decay_falls_from_its_end() -> None:
    expected = [*((step + 1) / 15 for step in range(15)), *((20 - step) / 5 for step in range(15, 20))]
    assert rates(20, kind="wsd", warmup=15, decay=0.5) == pytest.approx(expected)


def test_inverse_sqrt_is_the_rate_of_the_2017_paper_scaled_to_a_peak_of_1() -> None:
    def paper(step: int, warmup: int) -> float:  # section 5.3, without d_model**-0.5; steps count from 1
        return min(step**-0.5, step * warmup**-1.5)

    assert rates(50, kind="inverse_sqrt", warmup=10) == pytest.approx(
        [paper(s, 10) / paper(10, 10) for s in range(1, 51)]
    )


@pytest.mark.parametrize(
    ("given", "steps"),
    [({"steps": 7}, 7), ({"tokens": 1000}, 13), ({"epochs": 3.0}, 8), ({"epochs": 0.3}, 1), ({"tokens": 80_001}, 1001)],
)
def test_every_horizon_but_the_clock_comes_down_to_whole_steps(given: dict[str, float], steps: int) -> None:
    assert horizon_of(Train(**given, batch_size=4), epoch_steps=2.5, epoch_tokens=200) == Horizon(steps=steps)  # type: ignore[arg-type]


def test_what_rounding_adds_to_a_whole_number_of_steps_is_not_a_step_more() -> None:
    assert 290 / 70 * 7 > 29
    assert horizon_of(Train(tokens=290, batch_size=4), epoch_steps=7, epoch_tokens=70) == Horizon(steps=29)


def test_the_clock_stays_a_clock() -> None:
    assert horizon_of(Train(time=90.0), epoch_steps=2.5, epoch_tokens=200) == Horizon(seconds=90.0)


def test_under_the_clock_the_curve_follows_the_share_of_time_used() -> None:
    schedule = TrainingSchedule(linear.Settings(warmup=0), 2.0, Horizon(seconds=60.0))
    assert schedule.lr(5, 30.0) == pytest.approx(1.0)
    assert schedule.lr(50, 45.0) == pytest.approx(0.5)
    assert schedule.lr(0, 0.0) == 2.0
    assert not schedule.finished(10**6, 59.9)
    assert schedule.finished(3, 60.0)


def test_under_the_clock_the_very_first_step_is_that_of_a_thousand() -> None:
    schedule = TrainingSchedule(cosine.Settings(warmup=0.02), 2.0, Horizon(seconds=60.0))
    assert schedule.lr(0, 0.0) == pytest.approx(2.0 / 20)


def test_a_course_in_steps_ends_there_and_ignores_the_clock() -> None:
    schedule = TrainingSchedule(linear.Settings(warmup=0), 1.0, Horizon(steps=4))
    assert [schedule.lr(step, 1e9) for step in range(4)] == [1, 0.75, 0.5, 0.25]
    assert [schedule.finished(step, 1e9) for step in (3, 4)] == [False, True]


def test_an_extension_runs_the_curve_once_more_over_its_own_steps() -> None:
    for horizon, end in ((Horizon(steps=10), 10), (Horizon(steps=10), 7), (Horizon(seconds=3.0), 25)):
        longer = TrainingSchedule(cosine.Settings(warmup=2), 1.0, horizon).extended(end, 6)
        assert longer.horizon == Horizon(steps=end + 6)
        assert [longer.lr(step, 0) for step in range(end, end + 6)] == rates(6, kind="cosine", warmup=2)

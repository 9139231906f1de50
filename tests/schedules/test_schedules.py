"""The contract of schedules over every kind, over two of other people's, and against kinds that break it."""

import math
from collections.abc import Callable
from typing import ClassVar

import pytest
from strangers import strangers, words

from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.schedules import ScheduleSettings, progress
from mini_tf.testing import run_all
from mini_tf.testing import schedules as contract
from mini_tf.training.schedule import lr_factor

__all__ = ["strangers"]


@pytest.mark.usefixtures("strangers")
@pytest.mark.parametrize("kind", [*listing("schedules"), *words("schedules")])
def test_every_schedule(kind: str) -> None:
    settings = settings_of("schedules", kind)()
    assert isinstance(settings, ScheduleSettings)
    run_all(contract.cases(settings))


def test_warmup_and_decay_may_fill_the_run_between_them() -> None:
    wsd = settings_of("schedules", "wsd")
    settings = wsd(warmup=0.25, decay=0.75)
    assert isinstance(settings, ScheduleSettings)
    assert [lr_factor(settings, step, 8) for step in (0, 2, 5, 8)] == [0.5, 1.0, 0.5, 0.0]
    with pytest.raises(ValueError, match="exceed the run"):
        wsd(warmup=0.25, decay=0.875)


def test_a_rate_is_stable_until_the_decay_begins() -> None:
    wsd = settings_of("schedules", "wsd")(warmup=1, decay=0.3)
    assert isinstance(wsd, ScheduleSettings)
    assert [lr_factor(wsd, step, 10) for step in (1, 7, 10)] == [1.0, 1.0, 0.0]


def test_progress_is_a_share_of_what_is_left_and_ends_with_the_run() -> None:
    assert [progress(step, 4, 8) for step in (2, 4, 5, 8, 9)] == [0.0, 0.0, 0.25, 1.0, 1.0]
    assert progress(1, 0.75, 1.25) == 0.5


class Line(ScheduleSettings):
    """To the floor in a line; the ones below differ from it in one thing."""

    def lr_factor(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return self.decayed(self.way(step, warmup_steps, n_steps))

    def way(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return progress(step, warmup_steps, n_steps)


class WastesASpan(Line):
    def way(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return min(1.0, 1.2 * progress(step, warmup_steps, n_steps))


class WarmsUpItself(Line):
    """Takes the steps of the warmup for its own."""

    def lr_factor(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return 0.5 * super().lr_factor(step, warmup_steps, n_steps)


class CountsBySteps(Line):
    """Takes the warmup's key for its length."""

    def way(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return progress(step, self.warmup, n_steps)


class FallsThrough(Line):
    def way(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return 1.1 * progress(step, warmup_steps, n_steps)


class StopsShort(Line):
    def way(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return 0.9 * progress(step, warmup_steps, n_steps)


class Waves(Line):
    def way(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return 0.5 - 0.5 * math.cos(7 * math.pi * progress(step, warmup_steps, n_steps))


class Steps(Line):
    def way(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return int(progress(step, warmup_steps, n_steps) * 4) / 4


class WholeOnly(Line):
    def way(self, step: int, warmup_steps: float, n_steps: float) -> float:
        return progress(step, warmup_steps, n_steps) if n_steps == int(n_steps) else 0.0


class Remembers(Line):
    """Goes by how often it was asked."""

    times: ClassVar[list[int]] = []

    def way(self, step: int, warmup_steps: float, n_steps: float) -> float:
        self.times.append(step)
        return progress(step, warmup_steps, n_steps) / len(self.times)


BROKEN: dict[str, tuple[type[Line], str]] = {
    "rates_are_positive_up_to_the_peak": (
        WastesASpan,
        r"the rate of step 9 of 10 with a warmup of 0 must be in \(0, 1\]: 0",
    ),
    "warms_up_in_equal_steps": (WarmsUpItself, "a warmup of 8 steps must rise by 1/8 a step"),
    "converts_a_warmup_share_to_steps": (
        CountsBySteps,
        "a warmup of 10% of 200 steps must give the rates of a warmup of 20 steps",
    ),
    "stays_above_the_floor": (FallsThrough, "the rate must stay above the floor 0.0: -0.09"),
    "ends_at_the_floor_if_declared": (
        StopsShort,
        "the rate must end at the floor 0.0: 0.0999.*; or declare REACHES_FLOOR = False",
    ),
    "never_rises_after_warmup_if_declared": (
        Waves,
        "the rate must not rise at step 115 of 500; or declare MONOTONE = False",
    ),
    "is_continuous_if_declared": (
        Steps,
        "the rate jumps by 0.25 between two of 10,000 steps; or declare CONTINUOUS = False",
    ),
    "accepts_a_fractional_number_of_steps": (
        WholeOnly,
        "the rate of step 56 must be about the same in 1000.5 steps and in 1000",
    ),
    "restarts_for_an_extension": (
        Remembers,
        "12 steps after 20 must have the rates of a run of 20 and one of 12 steps",
    ),
}


@pytest.mark.parametrize("holds", contract.CONTRACT, ids=lambda holds: holds.__name__)
def test_one_that_breaks_the_contract_is_told_and_the_same_without_the_fault_is_not(
    holds: Callable[[ScheduleSettings], None],
) -> None:
    fault, told = BROKEN[holds.__name__]
    holds(Line())
    with pytest.raises(AssertionError, match=told):
        holds(fault())


def test_what_is_not_claimed_is_not_asked_for() -> None:
    class Wild(Steps):
        CONTINUOUS: ClassVar[bool] = False
        MONOTONE: ClassVar[bool] = False
        REACHES_FLOOR: ClassVar[bool] = False

        def way(self, step: int, warmup_steps: float, n_steps: float) -> float:
            return (int(progress(step, warmup_steps, n_steps) * 8) % 3) / 4

    for holds in contract.CONTRACT:
        holds(Wild())


@pytest.mark.usefixtures("strangers")
def test_a_polynomial_of_power_two_is_the_square_of_what_is_left() -> None:
    settings = settings_of("schedules", "polynomial")(warmup=0)  # type: ignore[call-arg]
    assert isinstance(settings, ScheduleSettings)
    assert [lr_factor(settings, step, 8) for step in range(8)] == pytest.approx(
        [(1 - step / 8) ** 2 for step in range(8)]
    )

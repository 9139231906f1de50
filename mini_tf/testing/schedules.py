"""The contract of learning rate schedules: rates in (0, 1], linear warmup, and the declared properties.

Rates are those of `training.schedule.factor`, relative to the peak and including the warmup.
"""

from itertools import pairwise
from typing import Any

from mini_tf.schedules import ScheduleSettings
from mini_tf.testing import Case, cases_of, checks_of
from mini_tf.training.schedule import Horizon, TrainingSchedule, lr_factor

_LENGTHS = (1, 2, 3, 10, 97, 1000)
_WARMUPS: tuple[int | float, ...] = (0, 1, 5, 0.02, 0.3)
_FLOORS = (0.0, 0.25)


def rates_are_positive_up_to_the_peak(settings: ScheduleSettings) -> None:
    """At every step, also for runs of one step; beyond the last step (with a time limit) no rate is negative."""
    for n_steps in _LENGTHS:
        for warmup in _WARMUPS:
            for step, rate in enumerate(_rates(_with(settings, warmup=warmup), n_steps)):
                assert 0 < rate <= 1, (
                    f"the rate of step {step} of {n_steps} with a warmup of {warmup} must be in (0, 1]: {rate}"
                )
            late = lr_factor(_with(settings, warmup=warmup), n_steps + 7, n_steps)
            assert 0 <= late <= 1, f"the rate of step {n_steps + 7} of {n_steps} must be in [0, 1]: {late}"


def warms_up_in_equal_steps(settings: ScheduleSettings) -> None:
    """The warmup starts above zero, and its last step is at the peak."""
    rates = _rates(_with(settings, warmup=8, floor=0.0), 1000)[:8]
    assert rates == [(step + 1) / 8 for step in range(8)], f"a warmup of 8 steps must rise by 1/8 a step: {rates}"


def converts_a_warmup_share_to_steps(settings: ScheduleSettings) -> None:
    """A warmup of 10% of 200 steps is a warmup of 20 steps."""
    share, steps = (_rates(_with(settings, warmup=warmup), 200) for warmup in (0.1, 20))
    assert share == steps, "a warmup of 10% of 200 steps must give the rates of a warmup of 20 steps"


def stays_above_the_floor(settings: ScheduleSettings) -> None:
    """After the warmup no rate is below the floor, except for rounding."""
    for floor in _FLOORS:
        lowest = min(_rates(_with(settings, warmup=5, floor=floor), 500)[5:])
        assert lowest >= floor - 1e-12, f"the rate must stay above the floor {floor}: {lowest}"


def ends_at_the_floor_if_declared(settings: ScheduleSettings) -> None:
    """REACHES_FLOOR: the rate after the last step is the floor."""
    for floor in _FLOORS if settings.REACHES_FLOOR else ():
        end = lr_factor(_with(settings, warmup=5, floor=floor), 500, 500)
        assert abs(end - floor) < 1e-9, (
            f"the rate must end at the floor {floor}: {end}; or declare REACHES_FLOOR = False"
        )


def never_rises_after_warmup_if_declared(settings: ScheduleSettings) -> None:
    """MONOTONE, except for rounding."""
    rates = _rates(_with(settings, warmup=0.1), 500)[50:]
    rising = [step for step, (rate, following) in enumerate(pairwise(rates), 51) if following > rate + 1e-12]
    assert not (settings.MONOTONE and rising), (
        f"the rate must not rise at step {rising[0]} of 500; or declare MONOTONE = False"
    )


def is_continuous_if_declared(settings: ScheduleSettings) -> None:
    """CONTINUOUS: with ten times the steps, the largest change between steps after the warmup is far smaller."""
    few, many = (
        _largest_change(_rates(_with(settings, warmup=0.1), n_steps)[n_steps // 10 :]) for n_steps in (1000, 10_000)
    )
    smooth = many <= 0.3 * few + 1e-9
    assert smooth or not settings.CONTINUOUS, (
        f"the rate jumps by {many:.3g} between two of 10,000 steps; or declare CONTINUOUS = False"
    )


def accepts_a_fractional_number_of_steps(settings: ScheduleSettings) -> None:
    """As extrapolated from a time limit. Half a step more changes a CONTINUOUS rate little."""
    settings = _with(settings, warmup=0)
    for step in range(0, 1000, 7):
        rate, near = (lr_factor(settings, step, n_steps) for n_steps in (1000.5, 1000))
        assert 0 < rate <= 1, f"the rate of step {step} of 1000.5 must be in (0, 1]: {rate}"
        close = abs(rate - near) < 0.05 or not settings.CONTINUOUS
        assert close, f"the rate of step {step} must be about the same in 1000.5 steps and in 1000: {rate} and {near}"


def restarts_for_an_extension(settings: ScheduleSettings) -> None:
    """`--extend`: warmup and curve are repeated over the additional steps; the earlier steps keep their rates."""
    settings = _with(settings, warmup=3)
    longer = TrainingSchedule(settings, 1.0, Horizon(steps=20)).extended(20, 12)
    rates, expected = [longer.lr(step, 0.0) for step in range(32)], [*_rates(settings, 20), *_rates(settings, 12)]
    assert rates == expected, (
        f"12 steps after 20 must have the rates of a run of 20 and one of 12 steps: {rates} != {expected}"
    )


CONTRACT = checks_of(__name__)


def cases(settings: ScheduleSettings) -> list[Case]:
    """All checks for a schedule of these settings."""
    return cases_of(CONTRACT, settings)


def _with(settings: ScheduleSettings, **changed: Any) -> ScheduleSettings:
    return settings.model_copy(update=changed)


def _rates(settings: ScheduleSettings, n_steps: int) -> list[float]:
    return [lr_factor(settings, step, n_steps) for step in range(n_steps)]


def _largest_change(rates: list[float]) -> float:
    return max(abs(following - rate) for rate, following in pairwise(rates))

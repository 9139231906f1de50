"""Gates: a comparison holds, or fails, exactly at its bound."""

import math
import operator
from collections.abc import Callable

import pytest

from mini_tf.recipe.metrics import Gate, failures
from mini_tf.system.errors import UsageFault

SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("bound", ["1.9", "0", "-2.5e-3"])
def test_a_gate_is_the_comparison_that_its_sign_says_at_the_bound_and_on_either_side(sign: str, bound: str) -> None:
    gate = Gate.parse(f"val.loss{sign}{bound}")
    at = float(bound)
    for value in (at, math.nextafter(at, -math.inf), math.nextafter(at, math.inf)):
        assert (gate.failure({"val.loss": value}) is None) == SIGNS[sign](value, at)


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("value", [None, math.nan])
def test_what_was_not_measured_or_is_not_a_number_meets_no_gate(sign: str, value: float | None) -> None:
    assert Gate("x", sign, 1.0).failure({"x": value}) is not None
    assert Gate("x", sign, 1.0).failure({"y": 1.0}) == "x: not measured; measured: y"


def test_each_gate_that_is_not_met_says_what_was_and_what_must_be() -> None:
    gates = [Gate("a", "<", 2.0), Gate("b", ">=", 0.5), Gate("c", "<", 1.0)]
    assert failures(gates, {"a": 2.0, "b": 0.5, "c": None}) == [
        "a is 2, but must be < 2",
        "c was not measured, but must be < 1",
    ]


def test_names_may_hold_blanks_and_stops_and_blanks_around_the_sign_do_not_count() -> None:
    assert Gate.parse(" f1.creative work  >= -.5e1 ") == Gate("f1.creative work", ">=", -5.0)


NO_COMPARISONS = "a a< <1 a<b<c a=1 a!=1 a<1<2 a<1.2.3 a<1b 1<2 1<a a<nan a>-inf a<Infinity a<=NaN"


@pytest.mark.parametrize("text", ["", *NO_COMPARISONS.split()])
def test_what_is_no_comparison_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageFault, match="is not a comparison"):
        Gate.parse(text)


@pytest.mark.parametrize(
    ("text", "other", "bound"),
    [
        ("val.accuracy>baseline.accuracy", "baseline.accuracy", 0.0),
        ("val.accuracy > baseline.accuracy - 0.005", "baseline.accuracy", -0.005),
        ("val.accuracy>baseline.accuracy+1e-3", "baseline.accuracy", 1e-3),
        ("val.accuracy>f1.creative work", "f1.creative work", 0.0),
    ],
)
def test_the_bound_may_be_another_metric_and_an_amount(text: str, other: str, bound: float) -> None:
    gate = Gate.parse(text)
    assert gate == Gate("val.accuracy", ">", bound, other)
    assert gate.metrics == ("val.accuracy", other)
    for value in (-1.0, 0.0, 0.5):
        at = 0.5 + bound
        metrics = {"val.accuracy": at + value, other: 0.5}
        assert (gate.failure(metrics) is None) == (at + value > 0.5 + bound)


def test_a_gate_on_another_metric_says_both_values_and_which_is_missing() -> None:
    gate = Gate.parse("val.accuracy>baseline.accuracy-0.1")
    assert gate.failure({"val.accuracy": 0.25, "baseline.accuracy": 0.5}) == (
        "val.accuracy is 0.25, but must be > baseline.accuracy -0.1 (0.5)"
    )
    assert gate.failure({"accuracy": 0.25, "baseline.accuracy": 0.25}) is None  # as `evaluate` calls it
    assert gate.failure({"val.accuracy": 0.25}) == "baseline.accuracy: not measured; measured: val.accuracy"
    for value in (None, math.nan):
        assert gate.failure({"val.accuracy": 0.25, "baseline.accuracy": value}) is not None

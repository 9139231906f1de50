"""Scalars are read by the type of their field, never by YAML's guess."""

from decimal import Decimal
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from mini_tf.recipe.data import Split
from mini_tf.recipe.kinds import Share
from mini_tf.recipe.sections import Seconds
from mini_tf.recipe.values import Scalar, describe, fit


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("+3", 3),
        ("0", 0),
        ("1_000", 1000),
        ("10k", 10_000),
        ("2M", 2_000_000),
        ("1.5k", 1500),
        ("3E4", 30_000),
        ("2G", 2 * 10**9),
        ("1.4T", 14 * 10**11),
    ],
)
def test_a_count_may_be_written_short(text: str, value: int) -> None:
    assert fit(Scalar(text), int) == value


NO_WHOLE_NUMBERS = "1.5 1.0 010 0x10 0o7 yes true 12:30:45 2024-01-01 1__0 _1 1_ 1.0005k 5% 1e30"


@pytest.mark.parametrize("text", [*NO_WHOLE_NUMBERS.split(), "9" * 5000])
def test_what_is_no_whole_number_stays_text_and_is_refused_later(text: str) -> None:
    assert isinstance(fit(Scalar(text), int), Scalar)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("3E4", 3e4),
        ("1_000", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-0.25", -0.25),
        ("1e-320", 1e-320),
        ("10k", 1e4),
        ("312T", 3.12e14),
    ],
)
def test_a_number_is_a_number_however_it_is_written(text: str, value: float) -> None:
    assert fit(Scalar(text), float) == value
    assert type(fit(Scalar(text), float)) is float


@pytest.mark.parametrize(
    "text", [".nan", "nan", ".inf", "-.inf", "inf", "1e999", "yes", "010", "12:30:45", "0x1p3", "1e", "", "5%", "30m"]
)
def test_what_is_no_finite_number_is_refused_later(text: str) -> None:
    assert isinstance(fit(Scalar(text), float), Scalar)


def test_percent_is_for_shares_and_units_of_time_are_for_times() -> None:
    assert fit(Scalar("5%"), Share) == 0.05
    assert fit(Scalar("5%"), Annotated[float, Field(ge=0, lt=1)]) == 0.05
    seconds = {"90": 90, "90s": 90, "30m": 1800, "2h": 7200, "1d": 86400, "0.5h": 1800}
    assert {text: fit(Scalar(text), Seconds) for text in seconds} == seconds
    assert isinstance(fit(Scalar("5%"), Seconds), Scalar)


def test_a_union_takes_whole_numbers_before_shares() -> None:
    warmup = Annotated[int, Field(ge=0)] | Annotated[float, Field(lt=1)]
    assert [fit(Scalar(text), warmup) for text in ("100", "0.1", "5%", "1k")] == [100, 0.1, 0.05, 1000]
    assert type(fit(Scalar("1"), warmup)) is int


def test_only_true_and_false_are_booleans() -> None:
    assert [fit(Scalar(text), bool) for text in ("true", "false")] == [True, False]
    for text in ("yes", "no", "on", "True", "1", "y"):
        assert isinstance(fit(Scalar(text), bool), Scalar)


def test_text_stays_what_was_written() -> None:
    for text in ("2024", "1e-3", "yes", "null", "010", "5%"):
        assert fit(Scalar(text), str) == text
        assert type(fit(Scalar(text), str)) is str


def test_quoted_text_is_neither_a_number_nor_true_nor_null() -> None:
    assert isinstance(fit(Scalar("5", quoted=True), int), Scalar)
    assert isinstance(fit(Scalar("true", quoted=True), bool), Scalar)
    assert fit(Scalar("null", quoted=True), str | None) == "null"
    assert fit(Scalar("null"), str | None) is None


def test_lists_and_mappings_are_read_item_by_item() -> None:
    assert fit([Scalar("0.9"), Scalar("5%")], tuple[float, Share]) == (0.9, 0.05)
    assert fit([Scalar("a"), Scalar("7")], tuple[str, ...]) == ("a", "7")
    assert fit({"text": Scalar("3")}, dict[str, str]) == {"text": "3"}


def test_a_type_is_described_in_words() -> None:
    assert describe(int | Literal["auto"]) == "a whole number or auto"
    assert describe(tuple[float, float]) == "a list of 2 finite numbers"
    assert describe(str | None) == "text"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_that_python_writes_is_read_back(number: float) -> None:
    assert fit(Scalar(repr(number)), float) == number


@given(st.integers(min_value=-(2**62), max_value=2**62))
def test_every_whole_number_that_python_writes_is_read_back(number: int) -> None:
    assert fit(Scalar(str(number)), int) == number
    assert fit(Scalar(f"{number:_}"), int) == number


@given(st.text(alphabet="0123456789.eE+-_kMGT%smhd", max_size=12))
def test_a_number_without_a_unit_is_what_decimal_says(text: str) -> None:
    value = fit(Scalar(text), float)
    if isinstance(value, float) and text[-1] not in "kMGT":
        assert value == float(Decimal(text.replace("_", "")))


@pytest.mark.parametrize(("share", "shown"), [(0.05, "5%"), (0.125, "12.5%"), (1 / 3, "0.3333333333333333")])
def test_a_split_is_shown_as_percent_unless_that_is_longer(share: float, shown: str) -> None:
    assert (str(Split(share=share)), str(Split(share=share, tail=True))) == (shown, f"tail {shown}")


def test_folds_are_shown_by_their_number() -> None:
    assert (str(Split(folds=5)), str(Split(folds=5, fold=2))) == ("5 folds", "fold 2 of 5")

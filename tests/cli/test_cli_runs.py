"""Cells and lines of `runs list`, `show` and `compare`, by hand for facts that real runs seldom have together."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mini_tf.cli.runs import compare, equal_cost, folders
from mini_tf.scores.intervals import Mean

FACTS: dict[str, Any] = {
    "name": "a",
    "recipe": "r",
    "state": "done",
    "step": 20,
    "val.loss": 1.23456,
    "loss_unit": "nats per byte",
    "figure": {"val.accuracy": 0.87654},
    "best": {"step": 10.0, "loss": 1.5},
    "parameters": 33_056,
    "minutes": 12.34,
    "date": "2026-01-02",
}


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        ({}, ["a", "r", "done", "20", "1.2346", "nats/byte", "accuracy 0.8765", "33.1k", "12.3", "2026-01-02"]),
        (
            {"val.loss": None},
            ["a", "r", "done", "20", "1.5000", "nats/byte", "accuracy 0.8765", "33.1k", "12.3", "2026-01-02"],
        ),
        (
            {"val.loss": None, "best": None, "figure": None},
            ["a", "r", "done", "20", "", "", "", "33.1k", "12.3", "2026-01-02"],
        ),
        (
            {"parameters": None, "minutes": None, "date": None, "loss_unit": None},
            ["a", "r", "done", "20", "1.2346", "", "accuracy 0.8765", *[""] * 3],
        ),
        (
            {"val.loss": 0.0, "minutes": 0.0},
            ["a", "r", "done", "20", "0.0000", "nats/byte", "accuracy 0.8765", "33.1k", "0.0", "2026-01-02"],
        ),
    ],
)
def test_a_run_that_is_not_done_has_its_lowest_loss(changes: dict[str, Any], cells: list[str]) -> None:
    assert folders.row_of(FACTS | changes) == cells
    assert len(cells) == len(folders.HEADERS)


def test_on_a_narrow_terminal_the_last_columns_are_left_out() -> None:
    """Empty columns take no room, columns have two spaces between them, and six are always there."""
    rows = [
        folders.row_of(FACTS | {"parameters": None, "date": None}),
        folders.row_of(FACTS | {"name": "b" * 20, "parameters": None, "date": None}),
    ]
    # Of run, recipe, state, step, val.loss, unit, metric, min: the longest cell or the header.
    widths = [20, 6, 5, 4, 8, 9, 15, 4]
    every = [0, 1, 2, 3, 4, 5, 6, 8]
    for n in (8, 7, 6):
        needed = sum(widths[:n]) + 2 * (n - 1)
        assert folders._fitting(rows, needed) == every[:n]
        assert folders._fitting(rows, needed - 1) == every[: max(6, n - 1)]
    assert folders._fitting(rows, 10) == every[:6]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5000"),
        (999_999.0, "999999.0000"),
        (1e6, "1e+06"),
        (1234567.0, "1.23457e+06"),
        (-2e6, "-2e+06"),
        (7, "7"),
        (True, "True"),
        ("x", "x"),
        ({"step": 3.0, "loss": 1.5}, "1.5000 at step 3"),
        ({"step": 4.0, "accuracy": 0.25}, "accuracy 0.2500 at step 4"),
        ({"a": 1, "b": 2.0}, "a 1, b 2.0000"),
        ({"step": 1.0, "a": 1, "b": 2}, "step 1.0000, a 1, b 2"),
        ([1, 2], "1 2"),
    ],
)
def test_values_are_shown_as_people_write_them(value: Any, text: str) -> None:
    assert folders.shown(value) == text


def test_values_that_are_not_set_have_no_line_and_the_others_are_aligned() -> None:
    assert folders.read_lines({"a": 1, "b": None, "c": [], "d": {}, "e": "", "zero": 0, "no": False}) == [
        *("a            1", "zero         0", "no           False")
    ]
    assert folders.read_lines({"a" * 14: 1, "b": 2.0}) == ["aaaaaaaaaaaaaa 1", "b              2.0000"]


def test_differences_are_of_metrics_that_both_runs_have() -> None:
    figures = {"val.loss": [1.5, 1.25], "val.acc": [0.5, None], "val.accuracy": [0.25, 0.75]}
    assert compare._rows(figures, ["val.accuracy"], True) == [
        *(
            ["val.loss", "1.5000", "1.2500", "-0.2500"],
            ["val.acc", "0.5000", "", ""],
            ["val.accuracy", "0.2500", "0.7500", ""],
        )
    ]
    assert compare._rows({"x": [1.0, 2.0, 3.0]}, [], False) == [["x", "1.0000", "2.0000", "3.0000"]]
    facts = [
        dict.fromkeys(compare.FACTS) | {"parameters": 33056, "step": 0},
        dict.fromkeys(compare.FACTS) | {"parameters": None, "step": 5},
    ]
    assert compare._facts(facts, True) == [["step", "0", "5", ""], ["parameters", "33,056", "", ""]]
    assert compare._facts(facts, False)[1] == ["parameters", "33,056", ""]
    assert [compare._short(value) for value in (None, 12345, True, "x", 1.5)] == ["", "12,345", "True", "x", "1.5"]
    assert compare._keys([{"a": 1, "b": 2}, {"c": 3, "a": 4}]) == ["a", "b", "c"]
    assert [compare._differ(values) for values in ([1, 1, 1], [1, 1, 2], [1], [2, 1])] == [False, True, False, True]


@pytest.mark.parametrize(
    ("axis", "cost", "half", "text"),
    [
        ("flops", 1.2345e12, None, "1.23e+12"),
        ("flops", None, None, ""),
        ("time", 99.94, None, "99.9 s"),
        ("time", 100.0, None, "100.0 s"),
        ("time", 1234.56, 7.891, "1,234.6 ± 7.9 s"),
        ("time", 0.01234, None, "0.0123 s"),
        ("steps", 1234.4, 2.6, "1,234 ± 3"),
    ],
)
def test_costs_have_their_units(axis: Any, cost: float | None, half: float | None, text: str) -> None:
    assert equal_cost._cost(axis, cost, half) == text


def test_means_have_their_intervals_and_differences_their_sign() -> None:
    assert equal_cost.mean_and_half(Mean(1.5, None, 1)) == "1.5000"
    assert equal_cost.mean_and_half(Mean(1.5, 0.25, 3)) == "1.5000 ± 0.2500"
    assert equal_cost.mean_and_half(Mean(0.5, 0.25, 3), sign="+") == "+0.5000 ± 0.2500"
    assert equal_cost.mean_and_half(None) == ""
    reached = SimpleNamespace(
        costs=[Mean(100.0, None, 1), Mean(50.0, 5.0, 2), None], at_first=[False, True, False], factors=[1.0, 2.0, None]
    )
    rows = equal_cost._reached_rows("steps", reached)  # type: ignore[arg-type]
    assert rows == [["steps", "100", "≤ 50 ± 5", "not reached"], ["  times cheaper", "1.00", "2.00", ""]]


def test_runs_of_one_name_are_told_apart_by_their_folders() -> None:
    paths = [Path("a/run"), Path("b/run"), Path("b/other")]
    assert [equal_cost.display_name(path, paths) for path in paths] == ["a/run", "b/run", "other"]


CURVE = SimpleNamespace(
    name="x",
    metric="val.accuracy",
    values=[(10, [0.5, 0.25]), (100, [0.75])],
    means={10: Mean(0.375, 0.125, 2), 100: Mean(0.75, None, 1)},
)
OTHER = SimpleNamespace(name="y", metric="val.accuracy", values=[(1000, [1.0])], means={1000: Mean(1.0, None, 1)})


def test_learning_curves_have_a_row_for_each_number_of_examples() -> None:
    header = ["val.accuracy by training examples", "x", "y"]
    rows = [["10", "0.3750 ± 0.1250", ""], ["100", "0.7500", ""], ["1,000", "", "1.0000"]]
    assert compare._learning_table([CURVE, OTHER]) == [(header, rows)]  # type: ignore[list-item]
    points = [{"train_examples": 10, "values": [0.5, 0.25]}, {"train_examples": 100, "values": [0.75]}]
    assert compare._learning_json(CURVE) == {  # type: ignore[arg-type]
        "name": "x",
        "metric": "val.accuracy",
        "points": points,
    }
    assert compare._learning_table([]) == []

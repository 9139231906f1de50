"""`minitf cost --lengths`: the slope of the fit, the formulas of the founding text, and the command's refusals."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import EXACT, TINY, minitf

from mini_tf.cli.cost import LENGTH_HEADERS, _length_cells
from mini_tf.cost import lengths
from mini_tf.cost.lengths import LengthCost, fit_slope, formula_rows, layers_of, measure_lengths
from mini_tf.recipe.reading import read
from mini_tf.training.machine.device import Setup


@pytest.mark.parametrize("exponent", [1.0, 1.5, 2.0])
def test_the_slope_is_the_exponent_of_a_power_of_the_length(exponent: float) -> None:
    x = [2**n for n in range(7, 13)]
    slope = fit_slope(x, [3e-6 * length**exponent for length in x])
    assert slope is not None
    assert slope.exponent == pytest.approx(exponent)
    assert slope.error == pytest.approx(0, abs=1e-9)
    assert (slope.first, slope.last) == (512, 4096)


def test_the_standard_error_is_that_of_least_squares() -> None:
    """Of the last four points, or of three, by the formula of the regression with residuals written out."""
    residuals = [0.01, -0.03, 0.03, -0.01]  # orthogonal to 1 and x
    x = [1.0, *(math.exp(n) for n in range(4))]
    y = [99.0, *(math.exp(2 * n + residual) for n, residual in enumerate(residuals))]
    slope = fit_slope(x, y)  # type: ignore[arg-type]
    assert slope is not None
    assert slope.exponent == pytest.approx(2)
    assert slope.error == pytest.approx(math.sqrt(sum(r * r for r in residuals) / 2 / 5))
    three = fit_slope(x[1:4], [math.exp(2 * n + r) for n, r in enumerate((0.01, -0.02, 0.01))])  # type: ignore[arg-type]
    assert three is not None
    assert three.error == pytest.approx(math.sqrt(6e-4 / 1 / 2))
    assert fit_slope([1, 2], [1.0, 2.0]) is None


def test_peak_is_the_largest_sum_of_tensors_at_one_time() -> None:
    def work() -> None:
        a = torch.zeros(1000, dtype=torch.float32)
        b = a + 1
        del a
        c = b + 1
        del b, c
        torch.zeros(500, dtype=torch.float32)

    work()
    assert lengths._peak_bytes(work, torch.device("cpu")) == pytest.approx(8000, rel=0.1)


def test_formulas_of_other_layers_are_those_of_the_table() -> None:
    recurrent, convolution = formula_rows(64).values()
    assert recurrent(200) == 2 * recurrent(100) == 3 * 4 * 200 * 64 * 64
    assert convolution(100) == 3 * 2 * 3 * 100 * 64 * 64


def test_flops_grow_with_the_square_of_the_length_or_linearly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths, "LONG_SECONDS", 0.0)
    recipe = read(
        TINY, ["model={kind: decoder, d_model: 32, n_layers: 3, n_heads: 2, attention: [softmax, linear, softmax]}"]
    ).recipe
    layers = layers_of("tiny", recipe)
    assert [layer.name for layer in layers] == ["softmax (tiny)", "linear (tiny)"]
    windows = "model={kind: decoder, attention: [softmax, {kind: window, window: 8}, {kind: window, window: 9}]}"
    names = [layer.name for layer in layers_of("tiny", read(TINY, [windows]).recipe)]
    assert names == ["softmax (tiny)", "window, layer 1 (tiny)", "window, layer 2 (tiny)"]
    for layer, power in zip(layers, (2, 1), strict=True):
        short, long = measure_lengths(layer, [256, 512], Setup())
        assert short.flops is not None
        assert long.flops is not None
        assert 1.9 ** (power if power == 1 else 1.4) < long.flops / short.flops < 2.05**power
        if (
            layer.of.mixer.kind == "softmax"
        ):  # four projections, and two products of queries and keys, in both directions
            assert short.flops == 3 * (4 * 2 * 256 * 32**2 + 2 * 2 * 256**2 * 32)
        for cost in (short, long):
            assert cost.saved is not None
            assert cost.peak is not None
            assert cost.peak > cost.saved > 0
            assert cost.seconds is not None
            assert cost.seconds > 0


def test_a_row_that_does_not_fit_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths, "free_bytes", lambda device: 200_000)
    [layer] = layers_of("tiny", read(TINY, ["model={kind: decoder, d_model: 32, n_layers: 1, n_heads: 2}"]).recipe)
    short, long = measure_lengths(layer, [16, 4096], Setup())
    assert short.seconds is not None
    assert (long.flops, long.seconds, long.saved, long.peak) == (None,) * 4


def test_a_length_is_not_measured_that_does_not_fit_by_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose memory grew faster than it seemed from the lengths that were probed."""
    measured: list[int] = []

    def measure(layer: Any, mixer: Any, length: int, setup: Setup) -> LengthCost:
        measured.append(length)
        return LengthCost(length, 1, 1.0, saved=10**9 if length == 1024 else 1, peak=1)

    monkeypatch.setattr(lengths, "_measure", measure)
    monkeypatch.setattr(lengths, "free_bytes", lambda device: 3 * 10**9)
    [layer] = layers_of("tiny", read(TINY, ["model={kind: decoder, d_model: 32, n_layers: 1, n_heads: 2}"]).recipe)
    costs = [*measure_lengths(layer, [512, 1024, 2048], Setup())]
    assert measured == [512, 1024]
    assert costs[2] == LengthCost(2048)


@pytest.mark.parametrize(("long", "repetitions"), [(0.0, 1), (1e9, lengths.MIN_REPETITIONS)])
def test_a_length_is_measured_so_often_at_least_unless_it_takes_long(
    long: float, repetitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[int] = []
    monkeypatch.setattr(lengths, "LONG_SECONDS", long)
    monkeypatch.setattr(lengths, "MEASURED_SECONDS", 0.0)
    monkeypatch.setattr(lengths.statistics, "median", lambda seconds: timed.append(len(seconds)))
    [layer] = layers_of("tiny", read(TINY, ["model={kind: decoder, d_model: 8, n_layers: 1, n_heads: 1}"]).recipe)
    assert len([*measure_lengths(layer, [8], Setup())]) == 1
    assert timed == [repetitions]


def test_the_command_prints_a_table_slopes_and_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lengths, "LONG_SECONDS", 0.0)
    done = minitf("cost", TINY, *EXACT, "--lengths", "16..64", "-o", "cost.png", "-o", "cost.json", "--json")
    assert done.exit_code == 0, done.stderr
    envelope = json.loads(done.stdout)
    [layer] = envelope["result"]
    assert [cost["length"] for cost in layer["lengths"]] == [16, 32, 64]
    assert envelope["metrics"] == {"slope.tiny": layer["slope"]}
    assert Path("cost.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(Path("cost.json").read_text()) == envelope["result"]
    assert minitf("cost", TINY, TINY, *EXACT, "--lengths", "16..64").stdout.count("time ~ L^") == 2


def test_the_cells_of_a_table_are_in_the_units_of_its_headers() -> None:
    cost = LengthCost(4096, flops=2_500_000, seconds=0.0123, saved=3 << 20, peak=5 << 10)
    cells = dict(zip(LENGTH_HEADERS[1:], _length_cells(cost), strict=True))
    assert cells == {"tokens": "4,096", "FLOP": "2.5 M", "saved": "3 MiB", "peak": "5 KiB", "ms": "12.3"}
    assert _length_cells(LengthCost(8)) == ["8", "-", "-", "-", "-"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lengths", "128"], "must be FIRST..LAST, such as 128..8192"),
        (["--lengths", "0..8"], "FIRST must be at least 1"),
        (["--lengths", "64..8"], "LAST at least FIRST"),
        (["--lengths", "1..9999999999"], "at most 1,048,576"),
        (["-o", "x.png"], "--output needs --lengths"),
    ],
)
def test_refusals(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = minitf("cost", TINY, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_memory_of_a_longer_row_is_extrapolated_through_the_two_longest() -> None:
    saved = {length: 7 * length + 3 * length**2 for length in (64, 256, 512)}
    assert lengths._extrapolated(saved, 4096) == pytest.approx(7 * 4096 + 3 * 4096**2)
    assert lengths._extrapolated({256: 100 + 256, 512: 100 + 512}, 4096) == pytest.approx(612 * 8)

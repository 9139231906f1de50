"""`minitf cost --lengths`: cost of self-attention against the length of a row."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mini_tf.cli.terminal.console import Console
from mini_tf.cli.terminal.files import write_all
from mini_tf.cli.terminal.numbers import in_bytes, short
from mini_tf.drawing.panel import Curves
from mini_tf.drawing.terminal import sentence, table
from mini_tf.jobs.cost.lengths import Layer, LengthCost, Slope, fit_slope, formula_rows, layers_of, measure_lengths
from mini_tf.recipe.recipe import Recipe
from mini_tf.training.machine.device import resolve_setup

HEADERS = ("layer", "tokens", "FLOP", "saved, formula", "saved", "peak", "ms")
MEANING = (
    "One self-attention layer with its projections, one row, forward and backward. FLOP and saved, formula: by formula, with the full "
    "square of attention scores; saved: tensors kept for the backward pass; peak: tensors that exist at the same time; ms: median."
)
Measured = list[tuple[Layer, list[LengthCost]]]


def print_lengths(console: Console, recipes: Sequence[tuple[str, Recipe]], lengths: Sequence[int], files: Sequence[Path]) -> None:
    """Measure, print the table and the slopes, and write the files."""
    measured: Measured = []
    for name, recipe in recipes:
        setup = resolve_setup(recipe.runtime)
        setup.apply()
        for layer in layers_of(name, recipe):
            costs = []
            for cost in measure_lengths(layer, lengths, setup):
                console.status(f"{layer.name}: {cost.length:,} tokens")
                costs.append(cost)
            measured.append((layer, costs))
    rows = [_row(layer, cost) for layer, costs in measured for cost in costs]
    result = [_record(layer, costs) for layer, costs in measured]
    write_all(console, files, result, lambda suffix: _draw(measured, lengths, suffix))
    if not files:
        console.show(table, HEADERS, rows)
        console.show(sentence, MEANING)
    lines = [_slope_line(layer.name, costs) for layer, costs in measured]
    console.output("\n".join(line for line in lines if line), metrics=_metrics(measured), result=result)


def _row(layer: Layer, cost: LengthCost) -> list[str]:
    return [
        layer.name,
        f"{cost.length:,}",
        "-" if cost.flops is None else short(cost.flops),
        *("-" if size is None else in_bytes(size) for size in (cost.saved, cost.measured_saved, cost.peak)),
        "-" if cost.seconds is None else f"{1000 * cost.seconds:.4g}",
    ]


def _slope(costs: Sequence[LengthCost]) -> Slope | None:
    timed = [(cost.length, cost.seconds) for cost in costs if cost.seconds is not None]
    return fit_slope([length for length, _ in timed], [seconds for _, seconds in timed])


def _slope_line(name: str, costs: Sequence[LengthCost]) -> str:
    slope, timed = _slope(costs), [cost.length for cost in costs if cost.seconds is not None]
    if slope is None:
        return ""
    return f"{name}: time ~ L^{slope.exponent:.2f} (standard error {slope.error:.2f}), fitted to {timed[-4:][0]:,} to {timed[-1]:,} tokens"


def _record(layer: Layer, costs: Sequence[LengthCost]) -> dict[str, Any]:
    slope = _slope(costs)
    return {
        "layer": layer.name,
        "attention": layer.settings.kind,
        "causal": layer.causal,
        "slope": None if slope is None else slope.exponent,
        "slope_error": None if slope is None else slope.error,
        "lengths": [vars(cost) for cost in costs],
    }


def _metrics(measured: Measured) -> dict[str, float]:
    slopes = {layer.name: _slope(costs) for layer, costs in measured}
    return {f"slope.{name}": slope.exponent for name, slope in slopes.items() if slope is not None}


def _draw(measured: Measured, lengths: Sequence[int], suffix: str) -> bytes:
    """FLOPs by formula, also of recurrent and convolutional layers, beside measured times."""
    from mini_tf.drawing.curves import draw_curves  # matplotlib is slow to import

    def line(values: Sequence[float | None]) -> list[float]:
        return [float("nan") if value is None else value for value in values]

    flops = {layer.name: line([cost.flops for cost in costs]) for layer, costs in measured}
    width = measured[0][0].dims.d_model
    flops |= {name: [formula(length) for length in lengths] for name, formula in formula_rows(width).items()}
    times = {layer.name: line([cost.seconds and 1000 * cost.seconds for cost in costs]) for layer, costs in measured}
    panels = [
        Curves("FLOPs by formula", lengths, "tokens per row", "FLOPs, forward and backward", flops, True),
        Curves("time on this machine", lengths, "tokens per row", "ms, forward and backward", times, True),
    ]
    return draw_curves(panels, suffix)

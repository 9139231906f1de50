"""`minitf cost --lengths`: cost of attention against the length of a row."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mini_tf.cli.terminal.console import Console
from mini_tf.cli.terminal.files import write_all
from mini_tf.system.numbers import in_bytes, short

if TYPE_CHECKING:
    from mini_tf.jobs.cost.lengths import LayerCosts, LengthCost
    from mini_tf.recipe.recipe import Recipe

HEADERS = ("layer", "tokens", "FLOP", "saved", "peak", "ms")
MEANING = (
    "One attention layer with its projections, one row, forward and backward. FLOP: matrix products, with the full"
    " square of attention scores; saved: tensors kept for the backward pass; peak: tensors that exist at the same time;"
    " ms: median."
)


def print_lengths(
    console: Console, recipes: "Sequence[tuple[str, Recipe]]", lengths: Sequence[int], files: Sequence[Path]
) -> None:
    """Measure, print the table and the slopes, or write the files."""
    from mini_tf.drawing.terminal import sentence, table
    from mini_tf.jobs.cost.lengths import measure_recipes

    measured = measure_recipes(recipes, lengths)
    result = [_record(one) for one in measured]
    write_all(console, files, result, lambda suffix: _draw(measured, lengths, suffix))
    if not files:
        console.show(table, HEADERS, [[one.layer.name, *_cells(cost)] for one in measured for cost in one.costs])
        console.show(sentence, MEANING)
    metrics = {f"slope.{one.layer.name}": one.slope.exponent for one in measured if one.slope is not None}
    console.output("\n".join(line for one in measured for line in _slope_lines(one)), metrics=metrics, result=result)


def _cells(cost: "LengthCost") -> list[str]:
    return [
        f"{cost.length:,}",
        "-" if cost.flops is None else short(cost.flops),
        *("-" if size is None else in_bytes(size) for size in (cost.saved, cost.peak)),
        "-" if cost.seconds is None else f"{1000 * cost.seconds:.4g}",
    ]


def _slope_lines(measured: "LayerCosts") -> list[str]:
    if (slope := measured.slope) is None:
        return []
    fitted = f"fitted to {slope.first:,} to {slope.last:,} tokens"
    return [f"{measured.layer.name}: time ~ L^{slope.exponent:.2f} (standard error {slope.error:.2f}), {fitted}"]


def _record(measured: "LayerCosts") -> dict[str, Any]:
    layer, slope = measured.layer, measured.slope
    return {
        "layer": layer.name,
        "attention": layer.of.mixer.kind,
        "causal": layer.of.causal,
        "slope": None if slope is None else slope.exponent,
        "slope_error": None if slope is None else slope.error,
        "lengths": [vars(cost) for cost in measured.costs],
    }


def _draw(measured: "Sequence[LayerCosts]", lengths: Sequence[int], suffix: str) -> bytes:
    """FLOPs, counted or (of recurrent and convolutional layers) by formula, beside measured times."""
    from mini_tf.drawing.curves.plot import draw_curves
    from mini_tf.drawing.panel import Curves
    from mini_tf.jobs.cost.lengths import formula_rows

    def line(values: Sequence[float | None]) -> list[float]:
        return [float("nan") if value is None else value for value in values]

    flops = {one.layer.name: line([cost.flops for cost in one.costs]) for one in measured}
    width = measured[0].layer.dims.d_model
    flops |= {name: [formula(length) for length in lengths] for name, formula in formula_rows(width).items()}
    times = {one.layer.name: line([cost.seconds and 1000 * cost.seconds for cost in one.costs]) for one in measured}
    panels = [
        Curves("FLOPs", lengths, "tokens per row", "FLOPs, forward and backward", flops, True),
        Curves("time on this machine", lengths, "tokens per row", "ms, forward and backward", times, True),
    ]
    return draw_curves(panels, suffix)

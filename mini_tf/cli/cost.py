"""`minitf cost`: time, memory and FLOPs of a training run, measured on a few of its steps; --lengths: of attention
layers against the length of a row.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.terminal.completion import recipe_arguments
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check, draws, picture_or_json, write_all
from mini_tf.cli.terminal.loading import at_terminal
from mini_tf.cli.terminal.options import RUNTIME_DEVICE
from mini_tf.system.errors import UsageFault
from mini_tf.system.numbers import doubled, duration, in_bytes, short

if TYPE_CHECKING:
    from mini_tf.cost.lengths import LayerCosts, LengthCost
    from mini_tf.cost.run_cost import Cost
    from mini_tf.recipe.recipe import Recipe

MAX_LENGTH = 2**20
RECIPES = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE ...] [KEY=VALUE ...]",
        help="Shipped recipes, recipe files or runs, and settings to override in all.",
        show_default="quickstart",
        autocompletion=recipe_arguments,
    ),
]
STAGES = {
    "start": ("start", "process, data, model"),
    "warm_up": ("first steps", "warmup beyond the usual step time"),
    "training": ("training", "steps"),
    "evaluation": ("evaluation", "during training"),
    "last_evaluation": ("evaluation", "on all validation data, at the end"),
    "samples": ("samples", "times"),
    "saving": ("saving", "checkpoints"),
    "closing": ("closing", "loss plot and closing report"),
}
"""Name of each part of a run's time, and its unit or meaning."""
HEADERS = ("recipe", "minutes", "steps", "ms", "tokens/s", "MFU %", "MiB", "GFLOP", "parameters")
MEANING = (
    "minutes: total, all seeds; ms, GFLOP: per step; MFU: of the fastest matrix product in this precision; "
    "MiB: weights, gradients, optimizer state and activations."
)
LENGTH_HEADERS = ("layer", "tokens", "FLOP", "saved", "peak", "ms")
LENGTH_MEANING = (
    "One attention layer with its projections, one row, forward and backward. FLOP: matrix products, with the full"
    " square of attention scores; saved: tensors kept for the backward pass; peak: tensors that exist at the same time;"
    " ms: median."
)


@command
@draws
def cost(
    console: Console,
    arguments: RECIPES = None,
    device: RUNTIME_DEVICE = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, metavar="S", help="Time steps for S seconds.", show_default="5")
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            "--lengths",
            metavar="FIRST..LAST",
            help="Instead, measure attention layers of each recipe on rows of FIRST tokens, doubled up to LAST.",
            show_default=False,
        ),
    ] = None,
    output: OUTPUT = None,
    force: FORCE = False,
) -> None:
    from mini_tf.recipe import reading
    from mini_tf.recipe.arguments import sort_arguments
    from mini_tf.run.identity import resolve

    recipes, overrides = sort_arguments(arguments or [])
    if device is not None:
        overrides.append(f"runtime.device={device}")
    if lengths is None and output:
        raise UsageFault("--output needs --lengths", hint="--json prints the estimate for programs")
    files = check(output, picture_or_json(), force)
    rows = None if lengths is None else doubled("--lengths", lengths, MAX_LENGTH)
    with at_terminal("loading PyTorch and the recipes"):
        resolved = [resolve(recipe, overrides) for recipe in recipes or [reading.DEFAULT_RECIPE]]
    if rows is not None:
        return _print_lengths(
            console, [(resolved_recipe.name, resolved_recipe.recipe) for resolved_recipe in resolved], rows, files
        )

    from mini_tf.cost.run_cost import estimate, stream_memory

    costs = []
    for resolved_recipe, recipe in zip(resolved, recipes or [reading.DEFAULT_RECIPE], strict=True):
        console.say(f"{resolved_recipe.name}: reading the data, then timing training steps")
        cost = estimate(resolved_recipe.recipe, console, seconds)
        costs.append(replace(cost, stream=stream_memory(resolved_recipe.recipe, None if overrides else recipe)))
    names = [resolved_recipe.name for resolved_recipe in resolved]
    results = [
        {"recipe": name, **cost.settings, "metrics": cost.metrics, "counts": cost.counts}
        for name, cost in zip(names, costs, strict=True)
    ]
    if len(costs) > 1:
        _compare(console, names, costs)
    text = "\n".join(_details(names[0], costs[0])) if len(costs) == 1 else None
    console.output(text, metrics=costs[0].metrics, result=results)


def _details(name: str, cost: "Cost") -> list[str]:
    """One recipe: a line per quantity, then one per part of the time."""
    settings, step = cost.settings, cost.timing.seconds
    flops, tokens = cost.step_flops.flops, cost.step_flops.tokens
    compiled, precision = "compiled" if settings["compile"] else "not compiled", settings["precision"]
    sizes = ", ".join(f"{part} {in_bytes(size)}" for part, size in vars(cost.memory).items())
    rows, peak = settings["micro_batch_size"], in_bytes(cost.timing.peak_bytes)
    mfu = flops / step / cost.peak
    facts = {
        "recipe": f"{name}: {settings['device']}, {precision}, {compiled}, threads {settings['threads']}",
        "parameters": f"{cost.parameters:,}",
        "compute": f"{short(flops)}FLOP per step, {short(flops / tokens)}FLOP per token, forward and backward",
        "memory": f"{in_bytes(cost.memory.total)}: {sizes}",
        "": f"activations for micro-batches of {rows} rows; measured peak {peak}",
        **_stream(cost),
        "speed": f"{duration(step)} per step of {tokens:,} tokens, {short(tokens / step)} tokens/s",
        "MFU": f"{mfu:.0%} of {short(cost.peak)}FLOP/s, the fastest {precision} matrix product here",
        "time": f"{duration(cost.total)} {f'for all {cost.run_set}' if cost.run_set else 'in total'}",
    }
    lines = [f"{label:<11} {value}" for label, value in facts.items()]
    for part, seconds in cost.seconds.items():
        stage, meaning = STAGES[part]
        meaning = f"{cost.counts[part]:,} {meaning}" if part in cost.counts else meaning
        meaning += f", {cost.seeds * cost.folds} times" if cost.run_set else ""
        lines.append(f"  {stage:<11} {duration(seconds):>8}  {meaning}")
    return lines


def _stream(cost: "Cost") -> dict[str, str]:
    if (stream := cost.stream) is None:
        return {}
    bound = f"at most {stream.bound:,} tokens of earlier rows in memory per row and layer"
    if stream.ideal is None:
        return {"stream": bound}
    measured = f"at the end of the run {stream.ideal:.1f} seen by the next token, {stream.real:.1f} kept"
    return {"stream": f"{bound}; {measured}"}


def _compare(console: Console, names: list[str], costs: "list[Cost]") -> None:
    """Several recipes: one row each."""
    from mini_tf.drawing.terminal import sentence, table

    rows = [
        [
            name,
            f"{cost.total / 60:.2f}",
            f"{cost.counts['training']:,}",
            f"{cost.timing.seconds * 1000:.1f}",
            f"{cost.step_flops.tokens / cost.timing.seconds:,.0f}",
            f"{100 * cost.step_flops.flops / cost.timing.seconds / cost.peak:.0f}",
            f"{cost.memory.total / 2**20:,.0f}",
            f"{cost.step_flops.flops / 1e9:,.2f}",
            f"{cost.parameters:,}",
        ]
        for name, cost in zip(names, costs, strict=True)
    ]
    console.show(table, HEADERS, rows)
    console.show(sentence, MEANING)


def _print_lengths(
    console: Console, recipes: "Sequence[tuple[str, Recipe]]", lengths: Sequence[int], files: Sequence[Path]
) -> None:
    """Measure, print the table and the slopes, or write the files."""
    from mini_tf.cost.lengths import measure_recipes
    from mini_tf.drawing.terminal import sentence, table

    measured = measure_recipes(recipes, lengths)
    result = [_layer_record(curve) for curve in measured]
    write_all(console, files, result, lambda suffix: _draw_lengths(measured, lengths, suffix))
    if not files:
        rows = [[curve.layer.name, *_length_cells(cost)] for curve in measured for cost in curve.costs]
        console.show(table, LENGTH_HEADERS, rows)
        console.show(sentence, LENGTH_MEANING)
    slopes = [(curve.layer.name, curve.slope) for curve in measured if curve.slope is not None]
    lines = [
        f"{name}: time ~ L^{slope.exponent:.2f} (standard error {slope.error:.2f}),"
        f" fitted to {slope.first:,} to {slope.last:,} tokens"
        for name, slope in slopes
    ]
    metrics = {f"slope.{name}": slope.exponent for name, slope in slopes}
    console.output("\n".join(lines), metrics=metrics, result=result)


def _length_cells(cost: "LengthCost") -> list[str]:
    return [
        f"{cost.length:,}",
        "-" if cost.flops is None else short(cost.flops),
        *("-" if size is None else in_bytes(size) for size in (cost.saved, cost.peak)),
        "-" if cost.seconds is None else f"{1000 * cost.seconds:.4g}",
    ]


def _layer_record(measured: "LayerCosts") -> dict[str, Any]:
    layer, slope = measured.layer, measured.slope
    return {
        "layer": layer.name,
        "attention": layer.of.mixer.kind,
        "causal": layer.of.causal,
        "slope": None if slope is None else slope.exponent,
        "slope_error": None if slope is None else slope.error,
        "lengths": [vars(cost) for cost in measured.costs],
    }


def _draw_lengths(measured: "Sequence[LayerCosts]", lengths: Sequence[int], suffix: str) -> bytes:
    """FLOPs, counted or (of recurrent and convolutional layers) by formula, beside measured times."""
    from mini_tf.cost.lengths import formula_rows
    from mini_tf.drawing.curves import draw_curves
    from mini_tf.drawing.panel import Curves

    def line(values: Sequence[float | None]) -> list[float]:
        return [float("nan") if value is None else value for value in values]

    flops = {curve.layer.name: line([cost.flops for cost in curve.costs]) for curve in measured}
    width = measured[0].layer.dims.d_model
    flops |= {name: [formula(length) for length in lengths] for name, formula in formula_rows(width).items()}
    times = {
        curve.layer.name: line([cost.seconds and 1000 * cost.seconds for cost in curve.costs]) for curve in measured
    }
    panels = [
        Curves("FLOPs", lengths, "tokens per row", "FLOPs, forward and backward", flops, True),
        Curves("time on this machine", lengths, "tokens per row", "ms, forward and backward", times, True),
    ]
    return draw_curves(panels, suffix)

"""`minitf runs compare`: metrics and settings of several runs, and their curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mini_tf.cli.runs.equal_cost import NAMES, EqualCost, Table, display_name, mean_and_half
from mini_tf.cli.runs.folders import model_facts, summary, warn_of_damage
from mini_tf.cli.terminal import files
from mini_tf.cli.terminal.completion import run_names
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT

if TYPE_CHECKING:
    from mini_tf.run.comparison.groups import LearningCurve

RUNS = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN RUN ...", help="Runs: folders, names in outputs/, or `last`.", autocompletion=run_names
    ),
]
AT = typer.Option(
    "--at",
    metavar="flops|time|steps",
    help="Compare and plot at equal cost of this kind only.",
    show_default="flops and time",
)
REACH = typer.Option(
    "--reach",
    metavar="METRIC[=VALUE]",
    help="Cost to reach this value of a metric.",
    show_default="the worst last value",
)
INITIAL = "model.init_from"
FACTS = ("recipe", "date", "state", "step", "parameters", "vocabulary", INITIAL, "loss_unit")


@command
@files.draws
def compare(
    console: Console,
    runs: RUNS,
    at: Annotated[Literal["flops", "time", "steps"] | None, AT] = None,
    reach: Annotated[str | None, REACH] = None,
    output: OUTPUT = None,
    force: FORCE = False,
) -> None:
    from mini_tf.drawing.terminal import table
    from mini_tf.run import finding, manifest
    from mini_tf.run.comparison.groups import learning_curves
    from mini_tf.system.errors import UsageFault

    if len(runs) < 2:
        raise UsageFault("one run given, at least two needed", hint=f"use `minitf runs compare {runs[0]} RUN`")
    named = files.check(output, files.picture_or_json(), force)
    folders = [finding.find(run) for run in runs]
    records = [manifest.read(folder) for folder in folders]
    for folder in folders:
        warn_of_damage(console, folder)
    facts = [summary(folder, record) for folder, record in zip(folders, records, strict=True)]
    models = [model_facts(folder) for folder in folders]
    names = [display_name(folder, folders) for folder in folders]
    metrics, decided = [record.metrics for record in records], [record.decides for record in records]
    figures = {key: [values.get(key) for values in metrics] for key in _keys(metrics)}
    keys = {key: values for key in _keys(decided) if _differ(values := [values.get(key) for values in decided])}
    equal = EqualCost(folders, at, reach)
    alike = not equal.incomparable
    by_size = learning_curves(equal.groups)
    result = {"runs": facts, "models": models, "figures": figures, "keys": keys, "same_unit": alike}
    result |= {**equal.to_json(), "learning_curves": [*map(_learning_json, by_size)]}

    def draw(suffix: str) -> bytes:
        from mini_tf.drawing.curves import draw_learning_curves

        if at is not None:
            return _at_equal_cost(equal, at, suffix)
        if by_size:
            return draw_learning_curves({curve.name: curve.values for curve in by_size}, by_size[0].metric, suffix)
        return _by_step(dict(zip(names, folders, strict=True)), [record.loss_unit for record in records], alike, suffix)

    files.write_all(console, named, result, draw)
    if not named:
        difference = ["difference"] if len(runs) == 2 else []
        rows = [
            *_facts([a | b for a, b in zip(facts, models, strict=True)], bool(difference)),
            *_rows(figures, equal.incomparable, bool(difference)),
        ]
        console.show(table, ["", *names, *difference], rows)
        if keys:
            rows = [[key, *map(_short, values)] for key, values in keys.items()]
            console.show(table, ["keys that differ", *names], rows)
        for headers, rows in (*equal.tables(), *_learning_table(by_size)):
            console.show(table, headers, rows)
    for note in equal.notes():
        console.say(note)
    if equal.incomparable:
        rest = "; compare val.bits_per_byte" if "val.bits_per_byte" in {*figures} - {*equal.incomparable} else ""
        unlike = "not comparable, since objectives, units or tokenizers differ"
        console.say(f"{', '.join(equal.incomparable)}: {unlike}{rest}")
    console.output(result=result)


def _by_step(folders: Mapping[str, Path], units: Sequence[str], alike: bool, suffix: str) -> bytes:
    """Losses by step, as a picture. alike: all have the same unit."""
    from mini_tf.drawing.curves import loss_curves
    from mini_tf.run.metric_files import curve

    curves = {}
    for (name, folder), unit in zip(folders.items(), units, strict=True):
        path = folder / "metrics.jsonl"
        curves[name if alike else f"{name} ({unit})"] = curve(path, "loss"), curve(path, "val.loss")
    return loss_curves(curves, units[0] if alike else "", suffix)


def _at_equal_cost(equal: EqualCost, at: Literal["flops", "time", "steps"], suffix: str) -> bytes:
    """Losses over FLOPs, time or steps, as a picture."""
    from mini_tf.drawing.curves import loss_curves

    alike = not equal.incomparable
    captions = [run.name if alike else f"{run.name} ({run.record.loss_unit})" for run in equal.runs]
    lines = {
        name: (run.points(at, "loss"), run.points(at, "val.loss"))
        for name, run in zip(captions, equal.runs, strict=True)
    }
    unit = equal.runs[0].record.loss_unit if alike else ""
    return loss_curves(lines, unit, suffix, f"{NAMES[at]}{', s' if at == 'time' else ''}")


def _keys(mappings: Sequence[Mapping[str, Any]]) -> list[str]:
    return [*dict.fromkeys(key for mapping in mappings for key in mapping)]


def _differ(values: Sequence[Any]) -> bool:
    return any(value != values[0] for value in values[1:])


def _facts(facts: Sequence[Mapping[str, Any]], blank: bool) -> list[list[str]]:
    return [
        [name, *(_name(run[name]) if name == INITIAL else _short(run[name]) for run in facts), *([""] if blank else [])]
        for name in FACTS
        if any(run[name] for run in facts)
    ]


def _rows(
    figures: Mapping[str, Sequence[float | None]], incomparable: Sequence[str], difference: bool
) -> list[list[str]]:
    from mini_tf.run.comparison.groups import is_among

    rows = []
    for key, values in figures.items():
        cells = ["" if value is None else f"{value:.4f}" for value in values]
        if difference:
            both = all(value is not None for value in values) and not is_among(key, incomparable)
            cells.append(f"{values[1] - values[0]:+.4f}" if both else "")  # type: ignore[operator]
        rows.append([key, *cells])
    return rows


def _name(model: str | None) -> str:
    """A run by its name, a model of the hub by its whole name."""
    return "" if model is None else model if model.startswith("hf:") else Path(model).name


def _short(value: Any) -> str:
    return (
        "" if value is None else f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    )


def _learning_table(curves: "Sequence[LearningCurve]") -> list[Table]:
    """Means over the number of training examples, if runs of one recipe differ in it."""
    if not curves:
        return []
    sizes = sorted({n for curve in curves for n, _ in curve.values})
    rows = [[f"{n:,}", *(mean_and_half(curve.means.get(n)) for curve in curves)] for n in sizes]
    return [([f"{curves[0].metric} by training examples", *(curve.name for curve in curves)], rows)]


def _learning_json(curve: "LearningCurve") -> dict[str, Any]:
    points = [{"train_examples": n, "values": [*values]} for n, values in curve.values]
    return {"name": curve.name, "metric": curve.metric, "points": points}

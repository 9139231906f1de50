"""`minitf runs report`: one page of one or more runs: curves, metrics, settings, samples, machines, heads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.runs.compare import RUNS
from mini_tf.cli.runs.equal_cost import NAMES, EqualCost, display_name
from mini_tf.cli.runs.folders import HEADERS, row_of, shown, summary, warn_of_damage
from mini_tf.cli.terminal import files
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT
from mini_tf.recipe.text_input import refuse_non_utf8
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.drawing.pages import Page, PageTable, Scene
    from mini_tf.drawing.panel import Curves, Scale
    from mini_tf.run.comparison.cost_curves import RunCurves

TEXT = typer.Option("--text", metavar="TEXT", help="Show the attention heads of each run on this text.")


@command
def report(
    console: Console,
    runs: RUNS,
    text: Annotated[str | None, TEXT] = None,
    output: OUTPUT = None,
    force: FORCE = False,
) -> None:
    from mini_tf.drawing.pages import page_file
    from mini_tf.run import finding

    refuse_non_utf8([text or ""], "--text")
    named = files.check(output, (".html",), force)
    if not named:
        raise UsageFault("a report is a file", hint="-o report.html")
    folders = [finding.find(run) for run in runs]
    for folder in folders:
        warn_of_damage(console, folder)
    equal = EqualCost(folders, None, None)
    files.write_all(console, named, None, lambda suffix: page_file(_page(console, folders, equal, text)))
    console.output(result={"runs": [str(folder) for folder in folders]})


def _page(console: Console, folders: Sequence[Path], equal: EqualCost, text: str | None) -> "Page":
    from mini_tf.drawing.pages import Page, PageTable, Scene
    from mini_tf.drawing.panel import Scale
    from mini_tf.run.comparison.cost_curves import RunCurves

    runs = [RunCurves.read(folder, display_name(folder, folders)) for folder in folders]
    scenes = [Scene({"run": run.name}, tables=[*_tables(run)]) for run in runs]
    notes, scale = [*equal.notes()], Scale()
    if text is not None:
        scenes, scale, of_heads = _with_heads(scenes, [run.folder for run in runs], text)
        notes += of_heads
    overview = PageTable("", HEADERS, [row_of(summary(run.folder, run.record)) for run in runs])
    tables = [overview, *(PageTable("", headers, rows) for headers, rows in equal.tables())]
    names = ", ".join(run.name for run in runs)
    facts = [] if text is None else [f"Attention heads on: {text}"]
    beside = "/b1" if len(runs) > 1 else ""
    title = f"Run {names}" if len(runs) == 1 else f"Runs {names}"
    curves = [*_curves(runs, not equal.incomparable)]
    for note in notes:
        console.say(note)
    return Page(title, scenes, scale, facts, notes, tables, curves=curves, row="query",
                column="key", opens=beside)  # fmt: skip


def _curves(runs: "Sequence[RunCurves]", comparable: bool) -> "Iterator[Curves]":
    """Losses by step, and of several runs also by FLOPs and time. comparable: one unit for all."""
    from mini_tf.drawing.pages import curves_of

    for axis, cost in {"steps": "step", "flops": NAMES["flops"], "time": f"{NAMES['time']}, s"}.items():
        lines = {
            f"{run.name}, {name}{'' if comparable else f', {run.record.loss_unit}'}": dict(run.points(axis, key))  # type: ignore[arg-type]
            for run in runs
            for name, key in (("training", "loss"), ("validation", "val.loss"))
        }
        curves = curves_of(f"loss by {cost}", cost, lines)
        if curves.lines and (axis == "steps" or len(runs) > 1):
            yield curves


def _tables(run: "RunCurves") -> "Iterator[PageTable]":
    """Metrics beside their baselines, settings, the machine, and the last samples of a run."""
    from mini_tf.drawing.pages import PageTable
    from mini_tf.run.identity import read_recipe
    from mini_tf.system.safe_files import read_small_file

    metrics, baseline = run.record.metrics, run.record.baseline
    rows = [
        [name, value, metrics.get(f"baseline.{name.removeprefix('val.')}")]
        for name, value in metrics.items()
        if not name.startswith("baseline.")
    ]
    yield PageTable("metrics", ["metric", run.name, baseline or "baseline"], rows)
    changed = read_recipe(run.folder).model_dump(mode="json", exclude_defaults=True)
    yield PageTable("settings that differ from the defaults", ["key", "value"], [*map(list, _flat(changed))])
    machine = [[name, shown(value)] for name, value in run.machine().items() if value is not None]
    yield PageTable("machine", ["", ""], machine)
    if samples := sorted((run.folder / "samples").glob("*.txt")):
        lines = read_small_file(samples[-1]).decode(errors="replace").splitlines()
        yield PageTable("", (), [[f"{samples[-1].stem}:"], *([line] for line in lines if line.strip())])


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", f"{value:g}" if isinstance(value, float) else shown(value)


def _with_heads(
    scenes: "Sequence[Scene]", folders: Sequence[Path], text: str
) -> "tuple[list[Scene], Scale, list[str]]":
    """The scenes with the heads of the runs on the text, their colors, and notes; a model without heads has one."""
    from mini_tf.drawing.panel import Scale
    from mini_tf.inspection._attention_files import scene_of
    from mini_tf.inspection._attention_maps import AttentionRequest, analyze_texts
    from mini_tf.inspection._attention_pictures import scale_of
    from mini_tf.inspection._subjects import with_targets
    from mini_tf.trained.opening import open_trained

    shown, notes = list[Any](), list[str]()
    for scene, folder in zip(scenes, folders, strict=True):
        try:
            trained = open_trained(folder)
            [sample] = analyze_texts(trained, with_targets(trained, [text], None), AttentionRequest())
        except UsageFault as fault:
            shown.append(scene)
            notes.append(fault.message)
        else:
            shown.append(replace(scene, maps=scene_of(sample).maps))
            notes += [f"{scene.at['run']}: {note}" for note in sample.notes]
    weights = [head.panel.values for scene in shown for head in scene.maps]
    return shown, scale_of(weights) if weights else Scale(), notes

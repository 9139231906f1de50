"""`minitf evaluate`: metrics of a trained model on validation data or a file."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mini_tf.cli.evaluation.class_plots import THRESHOLD, ClassPlots, class_options
from mini_tf.cli.evaluation.text_scores import BabyLMOptions, evaluate_babylm, evaluate_pairs
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, draws
from mini_tf.cli.terminal.gate_checks import check_gates, parse_gates, refuse_missed
from mini_tf.cli.terminal.loading import open_model, runs_of
from mini_tf.cli.terminal.options import AVERAGE, DEVICE, FIELDS, GATES, NPROC, RUN, STEP, io_option
from mini_tf.cli.terminal.processes import group_of, launched, leave_to_rank_0
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.trained.opening import Trained

_plot = partial(typer.Option, rich_help_panel="Plots")
DATA = io_option(
    "--data", metavar="FILE", help="Evaluate on this file, in any format of data.val.", show_default="the run's data"
)
PAIRS = io_option(
    "--pairs",
    metavar="FILE",
    help="Minimal pairs in BLiMP's format (.jsonl) or a glob. Repeatable.",
    show_default=False,
)
BABYLM = io_option("--babylm", metavar="DIR", help="BabyLM's evaluation data: full_eval or fast_eval.")
SCORE = io_option(
    "--score",
    metavar="NAME",
    help="With --pairs or --babylm: causal for a decoder, word or token for an encoder.",
    show_default="as BabyLM's script, or the first",
)
SPLIT = io_option("--split", metavar="val|train", help="Split of the run's data.", show_default="val")
MEMORY = io_option(
    "--memory",
    metavar="N",
    min=1,
    help="Memory of a model trained with train.stream, in tokens.",
    show_default="as in training",
)
CONFUSION = _plot("--confusion", metavar="FILE", help="Write the confusion matrix: .png, .svg, .pdf or .json.")
CALIBRATION = _plot("--calibration", metavar="FILE", help="Write the calibration plot: .png, .svg, .pdf or .json.")


@command
@draws
def evaluate(
    console: Console,
    run: RUN,
    data: Annotated[str | None, DATA] = None,
    fields: FIELDS = None,
    split: Annotated[Literal["val", "train"] | None, SPLIT] = None,
    pairs: Annotated[list[str] | None, PAIRS] = None,
    babylm: Annotated[Path | None, BABYLM] = None,
    score: Annotated[str | None, SCORE] = None,
    output: OUTPUT = None,
    memory: Annotated[int | None, MEMORY] = None,
    threshold: Annotated[list[str] | None, THRESHOLD] = None,
    confusion: Annotated[Path | None, CONFUSION] = None,
    calibration: Annotated[Path | None, CALIBRATION] = None,
    force: FORCE = False,
    step: STEP = None,
    average: AVERAGE = None,
    device: DEVICE = "auto",
    nproc: NPROC = 1,
    gates: GATES = None,
) -> int:
    further = {"--confusion": confusion, "--calibration": calibration, "--threshold": threshold, "--memory": memory}
    _check_options(data, fields, split, {"--pairs": pairs, "--babylm": babylm}, further)
    _check_companions(pairs, babylm, score, output)
    pictures, bounds = ClassPlots(confusion, calibration), parse_gates(gates)
    pictures.check(force)
    if (exit_code := launched(console, nproc)) is not None:
        return exit_code

    if babylm is not None:
        options = BabyLMOptions(babylm, score, output or [], force)
        opening = partial(open_model, step=step, device=device, average=average)
        return evaluate_babylm(console, runs_of(run), opening, options, bounds)
    trained = open_model(run, step, device, average, ensembles=True)
    from mini_tf.jobs.run_metrics import RunMetrics

    _set_memory(trained, memory)
    if pairs:
        return evaluate_pairs(console, trained, pairs, score, bounds)
    check_gates(bounds, "evaluate", trained.recipe, None if trained.labels is None else trained.labels.names)
    measured = RunMetrics(trained, console, class_options(trained, None, threshold or []))
    pictures.check_task(trained)
    with group_of() as group:
        measured.measure(data, split, fields, group)
    leave_to_rank_0(group)
    calibrated, figures = pictures.calibrated(trained, measured.accumulator)
    for line in filter(None, (calibrated, pictures.unlabelled(measured.accumulator))):
        console.say(line)
    title = f"{_weights(trained, step, average)}, {measured.split}"
    result = pictures.write(console, trained, measured.accumulator, title) | figures
    result |= {"notes": measured.notes} if measured.notes else {}
    metrics = measured.with_baselines()
    console.output(_table(metrics), run=trained.folder, metrics=metrics, result=result or None)
    pictures.show(console, trained, measured.accumulator, title)
    refuse_missed(bounds, {name: value for name, value in metrics.items() if isinstance(value, float)})
    return 0


def _weights(trained: "Trained", step: str | None, average: str | None) -> str:
    """The evaluated weights, for the title of plots."""
    from mini_tf.inspection._subjects import run_and_step

    if trained.members:
        return f"run {trained.folder.name}, ensemble of {len(trained.members)}"
    return run_and_step(trained.folder, step) if average is None else f"run {trained.folder.name}, average {average}"


def _check_options(
    data: str | None,
    fields: str | None,
    split: str | None,
    instead: Mapping[str, object],
    further: Mapping[str, object],
) -> None:
    """UsageFault for options that contradict each other. instead: options that name other data."""
    others = {"--data": data, "--split": split, "--fields": fields, **further}
    for name in (name for name, value in instead.items() if value):
        against = others | {other: value for other, value in instead.items() if other != name}
        if name == "--pairs":
            del against["--memory"]
        if conflicting := [other for other, value in against.items() if value]:
            raise UsageFault(f"{name} does not combine with {conflicting[0]}", hint="remove one of them")
    from mini_tf.recipe.data import check_evaluated

    check_evaluated(data, split, fields)


def _check_companions(
    pairs: list[str] | None, babylm: Path | None, score: str | None, output: Sequence[Path] | None
) -> None:
    """UsageFault for options that belong to others."""
    if score is not None and not pairs and babylm is None:
        raise UsageFault(f"--score {score}: used without --pairs", hint="--pairs FILE.jsonl names the pairs")
    if output and babylm is None:
        fault = f"--output {output[0]}: used without --babylm, so there are no predictions, only metrics"
        raise UsageFault(fault, hint="--json prints them for programs: minitf evaluate RUN --json > FILE")


def _set_memory(trained: "Trained", memory: int | None) -> None:
    """UsageFault if the model has no memory of a fixed length."""
    if memory is None:
        return
    mixers = [mixer for mixer in trained.model.mixers() if mixer.memory_length]
    for mixer in mixers:
        mixer.memory_length = memory
    if not mixers:
        way = "train one with train.stream=true and model.attention.memory_length"
        raise UsageFault(f"--memory {memory}: {trained.folder.name} has no memory of a fixed length", hint=way)


def _table(metrics: dict[str, float | str]) -> str:
    """One metric of the model per line, without the baselines, which were said; names of classes come from data."""
    from mini_tf.drawing.labels import caption

    shown = {caption(name): value for name, value in metrics.items() if not name.startswith("baseline.")}
    width = max(14, *map(len, shown))
    texts = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in shown.items()}
    return "\n".join(f"{name:<{width}} {text}" for name, text in texts.items())

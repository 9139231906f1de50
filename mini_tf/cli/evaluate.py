"""`minitf evaluate`: metrics of a trained model on validation data or a file."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mini_tf.cli.class_plots import ClassPlots
from mini_tf.cli.gate_checks import check_gates
from mini_tf.cli.minimal_pairs import evaluate_pairs
from mini_tf.cli.terminal.class_options import THRESHOLD, class_options
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE
from mini_tf.cli.terminal.loading import open_models
from mini_tf.cli.terminal.options import AVERAGE, DEVICE, FIELDS, GATES, INPUT_OUTPUT, NPROC, RUN, STEP
from mini_tf.cli.terminal.processes import group_of, launched, leave_to_rank_0
from mini_tf.recipe.metrics import Gate, failures
from mini_tf.system.errors import GateMissed, UsageFault
from mini_tf.system.progress import show_progress

if TYPE_CHECKING:
    from mini_tf.data.store import Store
    from mini_tf.parallel.group import ProcessGroup
    from mini_tf.pipelines import Pipeline
    from mini_tf.trained.opening import Trained
    from mini_tf.training.evaluation import MetricAccumulator

_input, _plot = (partial(typer.Option, rich_help_panel=name) for name in (INPUT_OUTPUT, "Plots"))
DATA = _input(
    "--data", metavar="FILE", help="Evaluate on this file, in any format of data.val.", show_default="the run's data"
)
PAIRS = _input(
    "--pairs",
    metavar="FILE",
    help="Minimal pairs in BLiMP's format (.jsonl) or a glob. Repeatable.",
    show_default=False,
)
SCORE = _input(
    "--score",
    metavar="NAME",
    help="With --pairs: causal for a decoder, word or token for an encoder.",
    show_default="the first",
)
SPLIT = _input("--split", metavar="val|train", help="Split of the run's data.", show_default="val")
MEMORY = _input(
    "--memory",
    metavar="N",
    min=1,
    help="Memory of a model trained with train.stream, in tokens.",
    show_default="as in training",
)
CONFUSION = _plot("--confusion", metavar="FILE", help="Write the confusion matrix: .png, .svg or .json.")
CALIBRATION = _plot("--calibration", metavar="FILE", help="Write the calibration plot: .png, .svg or .json.")


@command
def evaluate(
    console: Console,
    run: RUN,
    data: Annotated[str | None, DATA] = None,
    fields: FIELDS = None,
    split: Annotated[Literal["val", "train"] | None, SPLIT] = None,
    pairs: Annotated[list[str] | None, PAIRS] = None,
    score: Annotated[str | None, SCORE] = None,
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
    """Compute loss, perplexity and task metrics on validation data or a file.

    Every target counts once. Language models: loss in nats, perplexity, bits per byte, accuracy. Classes: accuracy, F1,
    Matthews correlation. Tags: entity F1. Numbers: Pearson and Spearman correlation. Generated texts: ROUGE, BLEU,
    chrF. With --pairs instead: the share of minimal pairs whose acceptable sentence is more probable. With --threshold
    what has no label counts as a wrong prediction, and belongs to no entity.
    """
    _check_options(
        data,
        fields,
        split,
        pairs,
        score,
        {"--confusion": confusion, "--calibration": calibration, "--threshold": threshold},
    )
    pictures, bounds = ClassPlots(confusion, calibration), [Gate.parse(gate) for gate in gates or []]
    pictures.check(force)
    if (exit_code := launched(console, nproc)) is not None:
        return exit_code

    trained = open_models(run, step, device, average)
    from mini_tf.pipelines import pipeline_of

    _set_memory(trained, memory)
    if pairs:
        return evaluate_pairs(console, trained, pairs, score, bounds)
    check_gates(bounds, "evaluate", trained.recipe, None if trained.labels is None else trained.labels.names)
    _say_missing(console, trained)
    pipeline = pipeline_of(trained).with_options(class_options(trained, None, threshold or []))
    pictures.check_task(trained)
    accumulator = pipeline.metric_accumulator()
    with group_of() as group:
        store, notes = _data(console, trained, data, split, fields, group)
        scores = pipeline.evaluate(trained, store, accumulator, group)
        written, signatures = _written(console, trained, pipeline, store, group, notes)
    leave_to_rank_0(group)
    figures = _say_calibration(console, trained, pictures, accumulator)
    evaluated_on = {"split": "data" if data is not None else split or "val"}
    title = f"{_weights(trained, step, average)}, {evaluated_on['split']}"
    result = pictures.write(console, trained, accumulator, title) | figures | ({"notes": notes} if notes else {})
    baselines = _baselines(console, trained, store, scores := scores | written, split)
    metrics = {**scores, **evaluated_on, **signatures, **baselines}
    console.output(_table(metrics), run=trained.folder, metrics=metrics, result=result or None)
    pictures.show(console, trained, accumulator, title)
    return _check(bounds, metrics)


def _say_missing(console: Console, trained: "Trained") -> None:
    """Say which packages are missing for some of the metrics."""
    from mini_tf.recipe.metrics import metrics_of
    from mini_tf.scores import missing_warning, packages_of

    if note := missing_warning(*packages_of(trained.recipe.objective.pipeline(), metrics_of(trained.recipe.objective))):
        console.say(note)


def _say_calibration(
    console: Console, trained: "Trained", pictures: ClassPlots, accumulator: "MetricAccumulator | None"
) -> dict[str, Any]:
    """Say how well probabilities are calibrated, and how many examples have no label; returns the figures."""
    calibrated, figures = pictures.calibrated(trained, accumulator)
    for line in filter(None, (calibrated, pictures.unlabelled(accumulator))):
        console.say(line)
    return figures


def _check(bounds: Sequence[Gate], metrics: Mapping[str, object]) -> int:
    """0, or GateMissed if a metric misses its bound."""
    if missed := failures(bounds, {name: value for name, value in metrics.items() if isinstance(value, float)}):
        raise GateMissed(missed[0], faults=missed)
    return 0


def _data(
    console: Console, trained: "Trained", data: str | None, split: str | None, fields: str | None, group: "ProcessGroup"
) -> "tuple[Store, list[str]]":
    """The data to evaluate on, and what is to be known about it, which is also printed."""
    from mini_tf.trained.evaluating import decision_notes, evaluation_data

    notes: list[str] = []
    with group.local_rank_0_first():
        store = evaluation_data(trained, data, split or "val", console.detail, fields, notes.append)
    each = group.several(
        "train.stream: a row begins with the state of the row before, so each process evaluates all rows"
    )
    if trained.recipe.train.stream and each:
        console.say(each)
    notes += _cut(trained, store) + decision_notes(trained, data is None and split != "train")
    for note in notes:
        console.say(note)
    return store, notes


def _weights(trained: "Trained", step: str | None, average: str | None) -> str:
    """The evaluated weights, for the title of plots."""
    from mini_tf.inspection._checkpoints import run_and_step

    if trained.members:
        return f"run {trained.folder.name}, ensemble of {len(trained.members)}"
    return run_and_step(trained.folder, step) if average is None else f"run {trained.folder.name}, average {average}"


def _check_options(
    data: str | None,
    fields: str | None,
    split: str | None,
    pairs: list[str] | None,
    score: str | None,
    further: Mapping[str, object],
) -> None:
    """UsageFault for options that contradict each other."""
    if score is not None and not pairs:
        raise UsageFault(f"--score {score}: used without --pairs", hint="--pairs FILE.jsonl names the pairs")
    others = {
        "--data": data,
        "--split": split,
        "--fields": fields,
        **{name: value or None for name, value in further.items()},
    }
    if pairs and (given := [name for name, value in others.items() if value is not None]):
        raise UsageFault(f"--pairs does not combine with {given[0]}", hint="remove one of them")
    if data is not None and split == "train":
        raise UsageFault(
            f"--data {data} has no training split: all of it is evaluated", hint="give one of --data and --split"
        )
    if data is None and fields is not None:
        raise UsageFault(
            f"--fields {fields}: used without --data", hint="--data FILE names the file with these columns"
        )


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


def _cut(trained: "Trained", store: "Store") -> list[str]:
    """A note on examples that are longer than the context."""
    from mini_tf.training.evaluation import pack

    dataset, context = trained.recipe.objective.dataset(), trained.model.context
    n_cut = (
        pack(trained.recipe, store, trained.tokenizer, trained.objective, context).n_too_long
        if dataset.TRUNCATES
        else 0
    )
    note = (
        f"of {store.n_documents:,} {dataset.UNIT} are longer than the model's context of {context} tokens and are"
        " truncated"
    )
    return [f"{n_cut:,} {note}"] if n_cut else []


def _written(
    console: Console, trained: "Trained", pipeline: "Pipeline", store: "Store", group: "ProcessGroup", notes: list[str]
) -> tuple[dict[str, float], dict[str, str]]:
    """Metrics of generated texts and their signatures; {} where the task generates none with references.

    notes: to which why metrics are 0 by their definition is added.
    """
    from mini_tf.scores import can_measure

    settings = trained.recipe.objective.pipeline()
    if settings is None or not can_measure(settings.GENERATION_METRICS):
        return {}, {}
    with show_progress(f"generating {store.n_documents:,} texts to score"):
        texts = [*pipeline.generate_with_references(store, group=group)]

        def measure() -> tuple[list[str], dict[str, float], dict[str, str]]:
            return (
                [*pipeline.zero_notes(iter(texts))],
                pipeline.scores(iter(texts)),
                pipeline.signatures(iter(texts)),
            )

        zero_notes, scores, signatures = group.on_rank_0(measure)
        for note in zero_notes:
            console.say(note)
        notes += zero_notes
        return scores, signatures


def _baselines(
    console: Console, trained: "Trained", store: "Store", scores: Mapping[str, float], split: str | None
) -> dict[str, float | str]:
    """Metrics of the baselines and the name of the best one; prints them beside the model's. None on training data."""
    from mini_tf.jobs.baselines import NAME, baselines_of_trained

    if split == "train":
        return {}
    found = baselines_of_trained(trained, store, console.detail)
    for line in found.lines(scores):
        console.say(line)
    name = found.name(scores)
    return {**found.metrics(scores), **({NAME: name} if name else {})}


def _table(metrics: dict[str, float | str]) -> str:
    """One metric per line; names of classes come from data."""
    from mini_tf.drawing.labels import caption

    shown = {caption(name): value for name, value in metrics.items()}
    width = max(14, *map(len, shown))
    return "\n".join(
        f"{name:<{width}} {value:.6g}" if isinstance(value, float) else f"{name:<{width}} {value}"
        for name, value in shown.items()
    )

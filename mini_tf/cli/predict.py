"""`minitf predict`: labels for texts, as lines of JSON."""

import math
import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.gate_checks import check_gates
from mini_tf.cli.generate.prompt_lines import default_lookahead
from mini_tf.cli.terminal.console import Console, command, to_json
from mini_tf.cli.terminal.options import AVERAGE, DEVICE, FIELDS, INPUT_OUTPUT, PREDICTED_GATES, RUN, STEP
from mini_tf.cli.terminal.text_input import batches_of, one_source, read_lines, refuse_non_utf8
from mini_tf.recipe.gates import Gate, failures
from mini_tf.recipe.values import no_such_class
from mini_tf.system.errors import DataFault, GateMissed, UsageFault

if TYPE_CHECKING:
    from mini_tf.data.datasets import Reader
    from mini_tf.pipelines import Prediction, PredictOptions, Predictor
    from mini_tf.trained.opening import Trained

_io = partial(typer.Option, rich_help_panel=INPUT_OUTPUT)
INPUT = _io("-i", "--input", metavar="FILE", help="Read texts from lines, or from a table (csv, tsv, jsonl, parquet, conll).")
BATCH_SIZE = _io("--batch-size", metavar="N", min=1, max=4096, help="Texts per forward pass.", show_default="auto")
_decision = partial(typer.Option, rich_help_panel="Classes and tags")
TOP = _decision("--top", metavar="N", min=1, help="Also print the N most probable classes, of tags for each word.", show_default=False)
THRESHOLD = _decision(
    "--threshold",
    metavar="P|CLASS=P",
    help="No label where its probability is below P; a class is the label where its probability is at least its P. Repeatable.",
    show_default=False,
)
ROWS = 32
"""Texts per batch of a file, by default."""


@command
def predict(
    console: Console,
    run: RUN,
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT ...]", help="Texts; without any, lines of stdin.")] = None,
    input: Annotated[Path | None, INPUT] = None,
    fields: FIELDS = None,
    batch_size: Annotated[int | None, BATCH_SIZE] = None,
    top: Annotated[int | None, TOP] = None,
    threshold: Annotated[list[str] | None, THRESHOLD] = None,
    step: STEP = None,
    average: AVERAGE = None,
    device: DEVICE = "auto",
    gates: PREDICTED_GATES = None,
) -> int:
    """Predict labels, tags or numbers for texts.

    Prints one line of JSON per text, in order: {"line": 1, "label": "good", "scores": {...}}. An input line is a text
    or a JSON object {"text": "..."}. --assert checks metrics on an input with labels.
    """
    if threshold and gates:
        raise UsageFault("--threshold does not combine with --assert, which needs a label for each text", hint="remove one of them")
    refuse_non_utf8(texts or [])
    one_source(texts, input)
    if not texts and input is None and sys.stdin.isatty():
        raise UsageFault("no text given", hint='give one: "a text", or -i FILE')
    bounds = [Gate.parse(gate) for gate in gates or []]

    from mini_tf.pipelines import pipeline_of
    from mini_tf.trained.ensembles import open_ensemble
    from mini_tf.trained.evaluating import decision_notes, other_data

    trained = open_ensemble(run, step, device, average)
    settings = trained.recipe.objective.pipeline()
    if settings is None or settings.COMMAND != "predict":
        hint = f"use `minitf generate {trained.folder.name}`" if settings is not None else None
        raise UsageFault(
            f"{trained.folder.name} was trained with the objective {trained.recipe.objective.kind}, which predicts no labels", hint=hint
        )
    if trained.members:
        console.detail(f"each prediction is the mean over the models of {len(trained.members)} runs (train.ensemble)")
    options = _options(trained, top, threshold or [])
    predictor = pipeline_of(trained).predictor(trained, bool(bounds), options)
    check_gates(bounds, "predict", trained.recipe, None if trained.labels is None else trained.labels.names)
    reader, file = predictor.reader(other_data(trained, fields=fields)), None if input == Path("-") else input
    for note in decision_notes(trained):
        console.say(note)
    n_read = 0
    try:
        for batch in batches_of(_examples(reader, texts, file), _batch_size(texts, file, batch_size)):
            for example, prediction in _predict(predictor, batch):
                line = {"line": _number_of(example.where), **prediction.more, "label": prediction.label, "scores": prediction.scores}
                console.print_output(to_json(line))
                n_read += 1
    finally:
        for note in predictor.unread.notes():
            console.say(note)
    if bounds:
        _check(console, predictor, bounds, n_read)
    return 0


def _check(console: Console, predictor: "Predictor", bounds: Sequence[Gate], n_read: int) -> None:
    """Print the metrics; GateMissed if one misses its bound."""
    if not n_read:
        raise DataFault("there is no text for --assert to check")
    scores = predictor.scores()
    for name, value in scores.items():
        console.say(f"{name} {value:.6g}")
    if missed := failures(bounds, scores):
        raise GateMissed(missed[0], faults=missed)


def _options(trained: "Trained", top: int | None, thresholds: Sequence[str]) -> "PredictOptions":
    """UsageFault if the run predicts no classes, or a threshold is invalid."""
    from mini_tf.pipelines import PredictOptions

    settings = trained.recipe.objective.pipeline()
    given = ["--top"] * (top is not None) + ["--threshold"] * bool(thresholds)
    if given and not settings.PREDICTS_CLASSES:
        trained_with = f"{trained.folder.name} was trained with the objective {trained.recipe.objective.kind}"
        raise UsageFault(f"{given[0]} needs classes or tags, but {trained_with}", hint="remove it")
    found: dict[str | None, float] = {}
    for one in thresholds:
        named, _, text = one.rpartition("=")
        name = named if "=" in one else None
        if name is not None and trained.labels is not None and name not in trained.labels.names:
            raise UsageFault(f"--threshold {one}: {no_such_class(name, trained.labels.names)}")
        if name in found:
            raise UsageFault(
                f"--threshold {one}: a second threshold of {'all classes' if name is None else name}", hint="remove one of them"
            )
        found[name] = _probability(one, text)
    return PredictOptions(top, found)


def _probability(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise UsageFault(f"--threshold {option}: must be a probability from 0 to 1", hint="0.8, or CLASS=0.3 for one class")
    return value


def _batch_size(texts: Sequence[str] | None, file: Path | None, requested: int | None) -> int:
    """Texts per batch: `requested`, else one for a pipe, since its writer may wait for each output."""
    return requested or (ROWS if texts else default_lookahead(file, ROWS))


def _examples(reader: "Reader", texts: Sequence[str] | None, file: Path | None) -> "Iterator[Any]":
    """Examples from arguments, rows of a table or lines; DataFault at the first invalid one."""
    from mini_tf.recipe.data import FORMATS

    if file is not None and file.suffix.lower() in FORMATS:
        yield from reader.read(reader.dataset.find(str(file), "--input"))
        return
    name = "argument " if texts else f"{file or 'stdin'}:"
    for number, line in enumerate(texts or read_lines(file), 1):
        yield reader.line(line, f"{name}{number}")


def _predict(predictor: "Predictor", examples: list[Any]) -> "Iterator[tuple[Any, Prediction]]":
    """Each example with its prediction; if one is refused, those before it are still returned."""
    try:
        found = predictor.predict(examples)
    except DataFault:
        if len(examples) == 1:
            raise
        for example in examples:
            yield from _predict(predictor, [example])
        return
    yield from zip(examples, found, strict=True)


def _number_of(where: str) -> int:
    """Number of the line, or of the row of a parquet file."""
    found = re.search(r"[0-9]+$", where)
    assert found is not None
    return int(found[0])

"""`minitf predict`: the labels that a trained model gives to texts, as lines of JSON."""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.gate_checks import check_gates
from mini_tf.cli.generate.prompt_lines import default_lookahead
from mini_tf.cli.terminal.console import Console, command, to_json
from mini_tf.cli.terminal.options import AVERAGE, DEVICE, FIELDS, PREDICTED_GATES, RUN, STEP
from mini_tf.cli.terminal.text_input import batches_of, one_source, read_lines, refuse_non_utf8
from mini_tf.recipe.gates import Gate, failures
from mini_tf.system.errors import DataFault, GateMissed, UsageFault

if TYPE_CHECKING:
    from mini_tf.data.datasets import Reader
    from mini_tf.pipelines import Prediction, Predictor

ROWS = 32
"""Texts of a file that are answered together unless --batch-size says otherwise."""


@command
def predict(
    console: Console,
    run: RUN,
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT ...]", help="Texts; else lines of stdin.")] = None,
    input: Annotated[Path | None, typer.Option("-i", "--input", metavar="FILE", help="Lines, or a table by its suffix.")] = None,
    fields: FIELDS = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", metavar="N", min=1, max=4096, help="Texts at once.")] = None,
    step: STEP = None,
    average: AVERAGE = None,
    device: DEVICE = "auto",
    gates: PREDICTED_GATES = None,
) -> int:
    """Classify, tag or rate texts: for each one a line of JSON {"line", "label", "scores"}, in the order of the input.

    A line is a text, or a JSON object {"text": ...}. With --assert the input has labels, and the answers are held to them.
    """
    refuse_non_utf8(texts or [])
    one_source(texts, input)
    if not texts and input is None and sys.stdin.isatty():
        raise UsageFault("there is no text to predict of", hint='give one: "a text", or -i FILE')
    held_to = [Gate.parse(gate) for gate in gates or []]

    from mini_tf.pipelines import pipeline_of
    from mini_tf.trained.evaluating import other_data
    from mini_tf.trained.opening import open_trained

    trained = open_trained(run, step, device, average)
    settings = trained.recipe.objective.pipeline()
    if settings is None or settings.COMMAND != "predict":
        hint = f"use `minitf generate {trained.folder.name}`" if settings is not None else None
        raise UsageFault(f"{trained.folder.name} was trained on {trained.recipe.objective.kind}, whose answers are no labels", hint=hint)
    predictor = pipeline_of(trained).prediction(trained, judged=bool(held_to))
    check_gates(held_to, "predict", trained.recipe, None if trained.labels is None else trained.labels.names)
    reader, file = predictor.reader(other_data(trained, fields=fields)), None if input == Path("-") else input
    n_read = 0
    try:
        for batch in batches_of(_examples(reader, texts, file), _at_once(texts, file, batch_size)):
            for example, prediction in _answered(predictor, batch):
                line = {"line": _number_of(example.where), **prediction.more, "label": prediction.label, "scores": prediction.scores}
                console.print_output(to_json(line))
                n_read += 1
    finally:
        for note in predictor.unread.notes():
            console.say(note)
    if not held_to:
        return 0
    if not n_read:
        raise DataFault("there is no text, so --assert has nothing to check")
    scores = predictor.scores()
    for name, value in scores.items():
        console.say(f"{name} {value:.6g}")
    if missed := failures(held_to, scores):
        raise GateMissed(missed[0], faults=missed)
    return 0


def _at_once(texts: Sequence[str] | None, file: Path | None, wanted: int | None) -> int:
    """Of a pipe each line is answered as it comes, since its writer may wait for that, unless a batch size is `wanted`."""
    return wanted or (ROWS if texts else default_lookahead(file, ROWS))


def _examples(reader: "Reader", texts: Sequence[str] | None, file: Path | None) -> "Iterator[Any]":
    """The arguments, the rows of a table, or lines, each as it comes; DataFault at the first that is none."""
    from mini_tf.recipe.data import FORMATS

    if file is not None and file.suffix.lower() in FORMATS:
        yield from reader.read(reader.dataset.find(str(file), "--input"))
        return
    name = "argument " if texts else f"{file or 'stdin'}:"
    for number, line in enumerate(texts or read_lines(file), 1):
        yield reader.line(line, f"{name}{number}")


def _answered(predictor: "Predictor", examples: list[Any]) -> "Iterator[tuple[Any, Prediction]]":
    """Each with its answer; where one cannot be answered those before it still are."""
    try:
        found = predictor.predict(examples)
    except DataFault:
        if len(examples) == 1:
            raise
        for example in examples:
            yield from _answered(predictor, [example])
        return
    yield from zip(examples, found, strict=True)


def _number_of(where: str) -> int:
    """The line, or the row of a parquet file, that an example stands in."""
    found = re.search(r"[0-9]+$", where)
    assert found is not None
    return int(found[0])

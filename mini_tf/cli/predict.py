"""`minitf predict`: labels for texts, as lines of JSON or a table."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mini_tf.cli.evaluation.class_plots import THRESHOLD, TOP, class_options
from mini_tf.cli.generate.command import default_lookahead
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.gate_checks import check_gates, parse_gates, refuse_missed
from mini_tf.cli.terminal.loading import TEXTS, check_texts, note_words, open_model
from mini_tf.cli.terminal.options import AVERAGE, DEVICE, FIELDS, NPROC, PREDICTED_GATES, RUN, STEP, io_option
from mini_tf.cli.terminal.processes import group_of, in_order, launched, refuse_stdin, several
from mini_tf.cli.terminal.streams import to_json
from mini_tf.recipe.text_input import read_lines
from mini_tf.system.errors import DataFault, UsageFault, batches_of

if TYPE_CHECKING:
    from mini_tf.data.datasets import Reader
    from mini_tf.pipelines import Prediction, Predictor
    from mini_tf.recipe.metrics import Gate

INPUT = io_option(
    "-i", "--input", metavar="FILE", help="Read texts from lines, or from a table (csv, tsv, jsonl, parquet, conll)."
)
BATCH_SIZE = io_option(
    "--batch-size", metavar="N", min=1, max=4096, help="Texts per forward pass.", show_default="auto"
)
ROWS = 32
"""Texts per batch of a file, by default."""


WIDEST_LABEL = 24
NARROWEST_TEXT = 16
Row = tuple[str, str, str, str]
"""Number of the input line, label, probability, text."""


class PredictionTable:
    """labels: the names of the classes, if there are some; top: how many of them have a probability."""

    def __init__(self, console: Console, labels: Sequence[str], top: int | None) -> None:
        self._console, self._begun = console, False
        label = min(WIDEST_LABEL, max(map(len, [*labels, "label", "-0.0000"])))
        self._widths = [6, label, 11 if top is None else min(top * (label + 6), 40)]

    def add(self, texts: Sequence[str], line: Mapping[str, Any]) -> None:
        """Print the rows of an example. line: what `predict` prints of it as JSON."""
        if not self._begun:
            self._begun = True
            self._show(("line", "label", "most probable" if "top" in line else "probability", "text"), bold=True)
        for row in rows_of(texts, line):
            self._show(row)

    def _show(self, row: Row, bold: bool = False) -> None:
        from rich.style import Style
        from rich.text import Text

        from mini_tf.drawing.labels import caption
        from mini_tf.drawing.text_layout import pad_left, pad_right

        widths = [*self._widths, max(NARROWEST_TEXT, self._console.width - sum(self._widths) - 6)]
        cells = [caption(cell, width) for cell, width in zip(row, widths, strict=True)]
        placed = [pad_left(cells[0], widths[0]), *map(pad_right, cells[1:], widths[1:])]
        style = Style(bold=bold and self._console.colored)
        self._console.show(Text("  ".join(placed), style, no_wrap=True, overflow="ignore"))


def rows_of(texts: Sequence[str], line: Mapping[str, Any]) -> Iterator[Row]:
    """One row for an example, or one for each of its words; "-" is no label, of enough probability."""
    label, scores, top = line["label"], line["scores"], line.get("top")
    if "words" in line:
        for number, (word, tag, p) in enumerate(zip(line["words"], label, scores, strict=True)):
            shown = f"{p:.4f}" if top is None else _most_probable(top[number])
            yield str(line["line"]) if number == 0 else "", tag or "-", shown, word
    elif isinstance(label, list):
        shown = _most_probable(top) if top is not None else ", ".join(f"{scores[name]:.4f}" for name in label)
        yield str(line["line"]), ", ".join(label) or "-", shown, " | ".join(texts)
    elif isinstance(label, float):
        yield str(line["line"]), f"{label:.6g}", "", " | ".join(texts)
    else:
        p = scores.get(label)
        shown = _most_probable(top) if top is not None else "" if p is None else f"{p:.4f}"
        yield str(line["line"]), label or "-", shown, " | ".join(texts)


def _most_probable(top: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{choice['label']} {choice['score']:.2f}" for choice in top)


@command
def predict(
    console: Console,
    run: RUN,
    texts: TEXTS = None,
    input: Annotated[Path | None, INPUT] = None,
    fields: FIELDS = None,
    batch_size: Annotated[int | None, BATCH_SIZE] = None,
    top: Annotated[int | None, TOP] = None,
    threshold: Annotated[list[str] | None, THRESHOLD] = None,
    step: STEP = None,
    average: AVERAGE = None,
    device: DEVICE = "auto",
    nproc: NPROC = 1,
    gates: PREDICTED_GATES = None,
) -> int:
    check_texts(texts, input)
    bounds = parse_gates(gates)
    refuse_stdin(nproc, not texts and input in (None, Path("-")))
    if several(nproc) and bounds:
        raise UsageFault(
            "several processes do not combine with --assert, which needs all predictions in one process",
            hint="remove one of them",
        )
    if (exit_code := launched(console, nproc)) is not None:
        return exit_code
    note_words(console, texts)

    trained = open_model(run, step, device, average, ensembles=True)
    from mini_tf.pipelines import pipeline_of
    from mini_tf.pipelines._commands import predict_settings
    from mini_tf.trained.evaluating import decision_notes, other_data

    predict_settings(trained)
    if trained.members:
        console.detail(f"each prediction is the mean over the models of {len(trained.members)} runs (train.ensemble)")
    options = class_options(trained, top, threshold or [])
    predictor = pipeline_of(trained).predictor(trained, bool(bounds), options)
    check_gates(bounds, "predict", trained.recipe, None if trained.labels is None else trained.labels.names)
    reader, file = predictor.reader(other_data(trained, fields=fields)), None if input == Path("-") else input
    for note in decision_notes(trained):
        console.say(note)
    table = None
    if sys.stdout.isatty() and not console.json:
        table = PredictionTable(console, () if trained.labels is None else trained.labels.names, top)
    size = batch_size or (ROWS if texts else default_lookahead(file, ROWS))
    batches = batches_of(_examples(console, reader, texts, file), size)
    n_read = _print(console, predictor, batches, table)
    if bounds:
        _check(console, predictor, bounds, n_read)
    return 0


def _check(console: Console, predictor: "Predictor", bounds: "Sequence[Gate]", n_read: int) -> None:
    """Print the metrics; GateMissed if one misses its bound."""
    if not n_read:
        raise DataFault("there is no text for --assert to check")
    scores = predictor.scores()
    for name, value in scores.items():
        console.say(f"{name} {value:.6g}")
    refuse_missed(bounds, scores)


def _examples(console: Console, reader: "Reader", texts: Sequence[str] | None, file: Path | None) -> "Iterator[Any]":
    """Examples from arguments, rows of a table or lines that are not empty; DataFault at the first invalid one."""
    from mini_tf.data.formats.tables import chosen_columns
    from mini_tf.recipe.data import FORMATS

    if file is not None and file.suffix.lower() in FORMATS:
        files = reader.dataset.find(str(file), "--input")
        for data_file in files:
            if chosen := chosen_columns(data_file, reader.columns, reader.names):
                console.say(f"{chosen}; --fields selects others")
        yield from reader.read(files)
        return
    if texts:
        yield from (reader.line(text, f"argument {number}") for number, text in enumerate(texts, 1))
        return
    empty = 0
    for number, line in enumerate(read_lines(file), 1):
        if number == 1 and file is None and _is_header(line, reader):
            console.warn("stdin is read as plain lines, and the first is that of a table; -i FILE.csv reads columns")
        if line.strip():
            yield reader.line(line, f"{file or 'stdin'}:{number}")
        else:
            empty += 1
    if empty:
        console.say(f"{empty:,} empty lines were skipped" if empty > 1 else "an empty line was skipped")


def _is_header(line: str, reader: "Reader") -> bool:
    """Whether a line has the name of a column that the reader looks for, beside others."""
    cells = [cell.strip(" \"'").lower() for cell in re.split(r"[,;\t]", line)]
    names = {*filter(None, reader.columns.names), *(alias for of in reader.columns.aliases.values() for alias in of)}
    return len(cells) > 1 and all(map(str.isidentifier, cells)) and not names.isdisjoint(cells)


def _print(
    console: Console, predictor: "Predictor", batches: Iterator[list[Any]], table: PredictionTable | None
) -> int:
    """Print the predictions, as JSON unless there is a table, then what of the texts was not read; returns the number
    of texts.
    """
    n_read = 0
    try:
        with group_of() as group:
            for texts, line in in_order(group, batches, partial(_lines, predictor), predictor.unread):
                if table is None:
                    console.print_output(to_json(line))
                else:
                    table.add(texts, line)
                n_read += 1
    finally:
        for note in predictor.unread.notes():
            console.say(note)
    return n_read


def _lines(predictor: "Predictor", examples: list[Any]) -> Iterator[tuple[Sequence[str], dict[str, Any]]]:
    """The texts of each example, and what is printed for it as JSON."""
    for example, prediction in _predict(predictor, examples):
        number = re.search(r"[0-9]+$", example.where)  # of the line, or of the row of a parquet file
        assert number is not None
        yield example.texts, {"line": int(number[0]), **prediction.to_json()}


def _predict(predictor: "Predictor", examples: list[Any]) -> "Iterator[tuple[Any, Prediction]]":
    """Each example with its prediction; if one is refused, those before it are still returned."""
    try:
        predictions = predictor.predict(examples)
    except DataFault:
        if len(examples) == 1:
            raise
        for example in examples:
            yield from _predict(predictor, [example])
        return
    yield from zip(examples, predictions, strict=True)

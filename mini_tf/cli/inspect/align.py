"""`minitf inspect align`: word alignments by cross-attention."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mini_tf.cli.inspect.options.heads import HEAD, LAYER, joined
from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.inspect.options.pairs import SOURCE, check_pair, pairs_of
from mini_tf.cli.inspect.options.texts import TARGET
from mini_tf.cli.terminal import files
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT
from mini_tf.cli.terminal.options import DEVICE, GATES, INPUT_OUTPUT, RUN, STEP
from mini_tf.recipe.metrics import Gate, failures
from mini_tf.system.errors import GateMissed, UsageFault

SUFFIXES = (".png", ".svg", ".json", ".pharaoh")
METRICS = ("aer", "diagonal", "sharpness")
"""Metrics for --assert; the first two need gold alignments."""


_io = partial(typer.Option, rich_help_panel=INPUT_OUTPUT)
DATA = _io("--data", metavar="FILE", help="Align the pairs of this file, in any format of data.val.")
GOLD = _io("--gold", metavar="FILE", help="GoldAlignment alignments, one pair per line: i-j sure, i?j possible.")
LIMIT = _io("--limit", metavar="N", min=1, help="Only the first N pairs.")
SHIFT = typer.Option(
    "--shift",
    metavar="S",
    min=0,
    max=1,
    help="Decoder position: 0 predicts the token, 1 has it as input.",
    show_default="best",
)


@command
def align(
    console: Console,
    run: RUN,
    source: SOURCE = None,
    target: TARGET = None,
    data: Annotated[str | None, DATA] = None,
    gold: Annotated[Path | None, GOLD] = None,
    layer: LAYER = None,
    head: HEAD = None,
    shift: Annotated[int | None, SHIFT] = None,
    limit: Annotated[int | None, LIMIT] = None,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
    gates: GATES = None,
) -> None:
    """Align target words to source words by cross-attention.

    With gold alignments, prints the alignment error rate (AER) of every head; the best head is chosen on every other
    pair and evaluated on the rest. Without, the head with the sharpest weights is used. FILE: a picture (.png, .svg),
    numbers (.json) or alignments (.pharaoh).
    """
    check_pair(source, target, data)
    if source is not None and gold is not None and target is None:
        raise UsageFault(f"--gold {gold} needs the target text", hint="--target TEXT")
    named, bounds = files.check(output, SUFFIXES, force), [Gate.parse(gate) for gate in gates or []]
    if unknown := next((gate.metric for gate in bounds if gate.metric not in METRICS), None):
        raise UsageFault(f"--assert {unknown}: not a metric of align; available: {', '.join(METRICS)}")

    from mini_tf.inspection.alignments.view import view
    from mini_tf.inspection.head_selection import HeadSelection
    from mini_tf.trained.opening import open_trained

    trained = open_trained(run, step, device)
    pairs = pairs_of(console, trained, source, target, data, "word alignment")
    found = view(
        trained, pairs, gold, limit, HeadSelection(None, joined(layer), joined(head)), shift, step, many=source is None
    )
    show(console, found, named, trained.folder)
    if missed := failures(bounds, found.metrics or {}):
        raise GateMissed(missed[0], faults=missed)

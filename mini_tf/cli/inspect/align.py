"""`minitf inspect align`: which source word each target word comes from, and how often a head of cross-attention is right about it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.inspect.chosen import HEAD, LAYER, joined
from mini_tf.cli.inspect.showing import show
from mini_tf.cli.inspect.texts import TARGET, with_targets
from mini_tf.cli.terminal import files
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT
from mini_tf.cli.terminal.lines import refuse_broken
from mini_tf.cli.terminal.options import DEVICE, GATES, RUN, STEP
from mini_tf.recipe.gates import Gate, failures
from mini_tf.system.errors import GateMissed, UsageFault

if TYPE_CHECKING:
    from mini_tf.data.examples import Pair
    from mini_tf.trained.opening import Trained

SUFFIXES = (".png", ".svg", ".json", ".pharaoh")
FIGURES = ("aer", "diagonal", "sharpness")
"""What --assert may hold the chosen head to; the first two only where there are true links."""


@command
def align(
    console: Console,
    run: RUN,
    source: Annotated[str | None, typer.Argument(metavar="[SOURCE]", help="A text; default: the held-out pairs of the run.")] = None,
    target: TARGET = None,
    data: Annotated[str | None, typer.Option("--data", metavar="FILE", help="Other pairs, in any form that data.val takes.")] = None,
    gold: Annotated[
        Path | None, typer.Option("--gold", metavar="FILE", help="True links, a line a pair: i-j, or i?j if only possible.")
    ] = None,
    layer: LAYER = None,
    head: HEAD = None,
    shift: Annotated[
        int | None, typer.Option("--shift", min=0, max=1, help="0: the row that predicts a token; 1: the row that reads it.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="The first N pairs alone.")] = None,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
    gates: GATES = None,
) -> None:
    """Word alignments by cross-attention: of one text a picture; of pairs with true links the error rate of every head.

    The head is chosen on every other pair with true links and judged on the rest; without such links it is the sharpest one.
    A FILE is a picture (.png, .svg), the numbers (.json), or links, a line a pair (.pharaoh).
    """
    refuse_broken([source or "", target or ""])
    if source is None and target is not None:
        raise UsageFault("--target belongs to a SOURCE", hint="give the text that it translates")
    if source is not None and data is not None:
        raise UsageFault(f"a SOURCE was given and --data {data} too", hint="give one of them")
    if source is not None and gold is not None and target is None:
        raise UsageFault(f"--gold {gold} links the words of a target that is known", hint="give it by --target")
    named, held_to = files.check(output, SUFFIXES, force), [Gate.parse(gate) for gate in gates or []]
    if unknown := next((gate.metric for gate in held_to if gate.metric not in FIGURES), None):
        raise UsageFault(f"--assert {unknown}: align measures no such figure; it does {', '.join(FIGURES)}")

    from mini_tf.inspection.alignments.view import view
    from mini_tf.inspection.choice import Choice
    from mini_tf.trained.opening import open_trained

    trained = open_trained(run, step, device)
    pairs = _pairs(console, trained, source, target, data)
    found = view(trained, pairs, gold, limit, Choice(None, joined(layer), joined(head)), shift, step, many=source is None)
    show(console, found, named, trained.folder)
    if missed := failures(held_to, found.metrics or {}):
        raise GateMissed(missed[0], faults=missed)


def _pairs(console: Console, trained: "Trained", source: str | None, target: str | None, data: str | None) -> "list[Pair]":
    from mini_tf.data.examples import Pair

    if not trained.model.reads_source:
        raise UsageFault(f"a model of the kind {trained.recipe.model.kind} reads no source: there is nothing to align")
    if source is None:
        return _held_out(trained, data)
    if not source.split():
        raise UsageFault("SOURCE has no word")
    [(text, own)] = with_targets(trained, [source], target)
    assert own is not None
    if not own.split():
        said = "the model's translation is empty" if target is None else "--target has no word"
        raise UsageFault(said, hint="say what the translation is: --target TEXT")
    if target is None:
        console.say(f"target: {own}")
    return [Pair(text, own, "SOURCE")]


def _held_out(trained: "Trained", data: str | None) -> "list[Pair]":
    from mini_tf.trained.evaluating import evaluation_data

    return list(trained.recipe.objective.dataset().examples(evaluation_data(trained, data, "val")))

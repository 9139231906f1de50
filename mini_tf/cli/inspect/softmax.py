"""`minitf inspect softmax`: how sharp the softmax of every head is."""

from typing import TYPE_CHECKING, Any

from mini_tf.cli.inspect.texts import INPUT, TEXTS, given_texts, with_targets
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check, write_all
from mini_tf.cli.terminal.options import DEVICE, RUN, STEP

if TYPE_CHECKING:
    from mini_tf.inspection.sides import Sides
    from mini_tf.inspection.softmax import Sharpness

LEGEND = (
    "Means over the rows that see two tokens or more. entropy in nats, normal by ln(tokens seen); p max the largest weight; saturated the "
    "share of rows with p max over 0.99; sum p(1-p) what passes of a gradient; range the largest difference of two scores in a row."
)


@command
def softmax(
    console: Console,
    run: RUN,
    texts: TEXTS = None,
    input: INPUT = None,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """How sharp every head's softmax is: entropy, largest weight, saturation, gradient, range of the logits.

    An encoder-decoder reads each text and its own translation of it.
    """
    from mini_tf.inspection.softmax import look
    from mini_tf.trained.opening import open_trained

    files, read = check(output, [".json"], force), given_texts(texts, input)
    trained = open_trained(run, step, device)
    given, heads = look(trained, with_targets(trained, read, None))
    notes = [f"text {number}: {note}" for number, one in enumerate(given, 1) for note in one.notes]
    if any(head.underflow for head in heads):
        notes.append("range: a lower bound where marked >; weights too small for their number type have no score")
    records = [record for one in given for record in _records(one)]
    result = {"texts": records, "heads": [vars(head) for head in heads], "notes": notes}
    write_all(console, files, result)  # before anything is printed: its reader may leave
    _draw(console, heads)
    for note in notes:
        console.say(note)
    console.answer(run=trained.folder, result=result)


def _records(sides: "Sides") -> list[dict[str, Any]]:
    """A text; or a source, and its target."""
    texts = [side.given for side in (sides.source, sides.own) if side is not None]
    return [{one.name: one.text, "n_tokens": len(one.ids), "n_cut": one.n_cut} for one in texts]


def _draw(console: Console, heads: "list[Sharpness]") -> None:
    from mini_tf.drawing.terminal import sentence, table

    rows: list[list[str | float | None]] = [
        [
            f"{head.layer}.{head.head} {head.kind}",
            head.entropy,
            head.normalised,
            head.largest,
            head.saturated,
            head.gradient,
            f"{'>' if head.underflow else ''}{head.logit_range:.1f}",
        ]
        for head in heads
    ]
    headers = ["layer.head", "entropy", "normal", "p max", "saturated", "sum p(1-p)", "range"]
    console.picture(table(headers, rows, colored=console.colored, width=console.width))
    console.picture(sentence(LEGEND, console.width))

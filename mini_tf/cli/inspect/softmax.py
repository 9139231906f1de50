"""`minitf inspect softmax`: how sharp the softmax of every head is."""

from typing import TYPE_CHECKING

from mini_tf.cli.console import Console, command, to_json
from mini_tf.cli.files import FORCE, OUTPUT, check, write
from mini_tf.cli.inspect.texts import INPUT, TEXTS, given_texts
from mini_tf.cli.options import DEVICE, RUN, STEP
from mini_tf.errors import UsageFault

if TYPE_CHECKING:
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
    """How sharp every head's softmax is: entropy, largest weight, saturation, gradient, range of the logits."""
    import torch

    from mini_tf.inspection.capture import capture
    from mini_tf.inspection.framing import framed
    from mini_tf.inspection.softmax import sharpness
    from mini_tf.nn.tokens import Tokens
    from mini_tf.run.trained import open_trained

    files, read = check(output, [".json"], force), given_texts(texts, input)
    trained = open_trained(run, step, device)
    separated, context = not trained.recipe.data.split.tail, trained.model.context
    cut = [framed(trained.tokenizer, text, separated).cut(context) for text in read]
    heads = sharpness(capture(trained.model, Tokens(torch.tensor([one.ids], device=trained.setup.device))) for one in cut)
    if not any(head.rows for head in heads):
        raise UsageFault("no token of the texts sees two tokens: nothing to choose between", hint="give a longer text")
    notes = [f"text {n}: cut at the context, {one.n_cut} tokens left out" for n, one in enumerate(cut, 1) if one.n_cut]
    if any(head.underflow for head in heads):
        notes.append("range: a lower bound where marked >; weights too small for their number type have no score")
    _draw(console, heads)
    for note in notes:
        console.say(note)
    records = [{"text": text, "n_tokens": len(one.ids), "n_cut": one.n_cut} for text, one in zip(read, cut, strict=True)]
    result = {"texts": records, "heads": [vars(head) for head in heads], "notes": notes}
    for file in files:
        write(file, (to_json(result) + "\n").encode())
        console.say(f"written: {file}")
    console.answer(run=trained.folder, result=result)


def _draw(console: Console, heads: "list[Sharpness]") -> None:
    from mini_tf.drawing.page import add_sentence, closed, page
    from mini_tf.drawing.terminal import table

    rows: list[list[str | float | None]] = [
        [
            f"{head.kind} {head.layer}.{head.head}",
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
    legend = page("", console.width)
    add_sentence(legend, LEGEND, console.width)
    console.picture(closed(legend))

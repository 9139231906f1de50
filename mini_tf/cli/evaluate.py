"""`minitf evaluate`: how good a trained model is on its held-out text, or on another."""

from typing import Annotated, Literal

import typer

from mini_tf.cli.console import Console, command
from mini_tf.cli.options import DEVICE, GATES, RUN, STEP


@command
def evaluate(
    console: Console,
    run: RUN,
    data: Annotated[str | None, typer.Option("--data", metavar="FILE", help="Another text, in any form that data.val takes.")] = None,
    split: Annotated[Literal["val", "train"], typer.Option("--split", help="Which side of the run's own text.")] = "val",
    step: STEP = None,
    device: DEVICE = "auto",
    gates: GATES = None,
) -> int:
    """Loss, perplexity, bits per byte and accuracy, over every target of the text once."""
    from mini_tf.errors import GateMissed
    from mini_tf.evaluate import evaluate_trained, text_of
    from mini_tf.recipe.gates import Gate, failures
    from mini_tf.run.trained import open_trained

    held_to = [Gate.parse(gate) for gate in gates or []]
    trained = open_trained(run, step, device)
    scores = evaluate_trained(trained, text_of(trained, data, split, console.detail))
    metrics = {**scores, "split": "data" if data is not None else split}
    lines = [f"{name:<14} {value:.6g}" if isinstance(value, float) else f"{name:<14} {value}" for name, value in metrics.items()]
    console.answer("\n".join(lines), run=trained.folder, metrics=metrics)
    if missed := failures(held_to, scores):
        raise GateMissed(missed[0], faults=missed)
    return 0

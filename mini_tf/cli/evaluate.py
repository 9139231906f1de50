"""`minitf evaluate`: how good a trained model is on its held-out text, or on another."""

from typing import Annotated, Literal

import typer

from mini_tf.cli.console import Console, command

RUN = Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, its name in outputs, or `last`.")]
STEP = Annotated[str | None, typer.Option("--step", metavar="N|best|last", help="A checkpoint (default: the best).")]


@command
def evaluate(
    console: Console,
    run: RUN,
    data: Annotated[str | None, typer.Option("--data", metavar="FILE", help="Another text, in any form that data.val takes.")] = None,
    split: Annotated[Literal["val", "train"], typer.Option("--split", help="Which side of the run's own text.")] = "val",
    step: STEP = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    gates: Annotated[list[str] | None, typer.Option("--assert", metavar="'loss<1.9'", help="Exit with 8 unless the figure is met.")] = None,
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

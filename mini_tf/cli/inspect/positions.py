"""`minitf inspect positions`: what positions a model knows."""

from typing import Annotated

import typer

from mini_tf.cli.inspect.output import show
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check
from mini_tf.cli.terminal.options import DEVICE, RUN, STEP
from mini_tf.system.errors import UsageFault


@command
def positions(
    console: Console,
    run: RUN,
    curve: Annotated[bool, typer.Option("--curve", help="The curve over distance alone, without the map of positions.")] = False,
    stack: Annotated[
        str | None, typer.Option("--stack", help="Of an encoder-decoder, whose positions: encoder, or decoder (the default).")
    ] = None,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """How similar positions are, or how scores change with distance; which rows of a table were never trained."""
    from mini_tf.inspection.positions import view
    from mini_tf.trained.opening import open_trained

    files = check(output, [".png", ".svg", ".json"], force)
    trained = open_trained(run, step, device)
    found = view(trained, stack, step, curve)
    if found.figure is None and (pictures := [file for file in files if file.suffix.lower() != ".json"]):
        said = f"--output {pictures[0]}: {found.result['positions']} positions have no curve or map to draw"
        raise UsageFault(said, hint="`minitf inspect attention` shows the attention weights of a text")
    show(console, found, files, trained.folder)

"""`minitf inspect positions`: positional encodings."""

from typing import Annotated

import typer

from mini_tf.cli.inspect.options.heads import STACK
from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check
from mini_tf.cli.terminal.options import DEVICE, RUN, STEP
from mini_tf.system.errors import UsageFault


@command
def positions(
    console: Console,
    run: RUN,
    curve: Annotated[bool, typer.Option("--curve", help="Plot only the curve over distance.")] = False,
    stack: STACK = None,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """Show how similar positions are, or how attention scores depend on distance.

    Reports rows of a learned table that were never trained.
    """
    from mini_tf.inspection.positions import view
    from mini_tf.trained.opening import open_trained

    files = check(output, [".png", ".svg", ".json"], force)
    trained = open_trained(run, step, device)
    found = view(trained, stack, step, curve)
    if found.figure is None and (pictures := [file for file in files if file.suffix.lower() != ".json"]):
        fault = f"--output {pictures[0]}: {found.result['positions']} positions have nothing to plot"
        raise UsageFault(fault, hint="`minitf inspect attention` shows the attention weights of a text")
    show(console, found, files, trained.folder)

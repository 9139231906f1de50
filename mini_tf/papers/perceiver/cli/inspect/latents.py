"""`minitf inspect latents`: what the latent vectors of a perceiver attend to."""

from typing import Annotated

import typer

from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.inspect.options.texts import INPUT, TEXTS, given_texts
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check
from mini_tf.cli.terminal.options import DEVICE, RUN, STEP

EXAMPLES = (
    'minitf inspect latents last "The file is closed."',
    "minitf inspect latents last -i lines.txt -o latents.png",
)
TOP = Annotated[int, typer.Option("--top", min=1, max=100, metavar="N", help="Tokens per latent in the table.")]


@command
def latents(
    console: Console,
    run: RUN,
    texts: TEXTS = None,
    input: INPUT = None,
    top: TOP = 3,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """Show which tokens each latent vector attends to, and which outputs attend to it (model perceiver).

    The third map is the attention rollout: which tokens reach each output through all layers. The table has the tokens
    that each latent attends to most, the entropy over tokens (0 to 1), the outputs that use it most, and its share of
    the outputs' attention.
    """
    from mini_tf.papers.perceiver.inspection.latents import view
    from mini_tf.trained.opening import open_trained

    files, read = check(output, [".png", ".svg", ".json"], force), given_texts(texts, input)
    trained = open_trained(run, step, device)
    show(console, view(trained, read, top, step), files, trained.folder)

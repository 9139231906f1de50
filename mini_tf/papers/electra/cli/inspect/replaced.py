"""`minitf inspect replaced`: which tokens a discriminator takes for replaced ones."""

from typing import Annotated

import typer

from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.inspect.options.texts import INPUT, TEXTS, given_texts
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check
from mini_tf.cli.terminal.options import DEVICE, RUN, STEP

EXAMPLES = (
    'minitf inspect replaced last "The file is closed."',
    'minitf inspect replaced last "The file is closed." --seed 1',
)
SEED = typer.Option(
    "--seed",
    metavar="N",
    min=0,
    help="First replace tokens as in training, with this random seed.",
    show_default="the text as it is",
)


@command
def replaced(
    console: Console,
    run: RUN,
    texts: TEXTS = None,
    seed: Annotated[int | None, SEED] = None,
    input: INPUT = None,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """Show the probability of every token of a text that it was replaced (objective replaced_token).

    With --seed the run's generator replaces tokens first, and the originals are shown in brackets.
    """
    from mini_tf.papers.electra.inspection.replaced import view
    from mini_tf.trained.opening import open_trained

    files, read = check(output, [".png", ".svg", ".json"], force), given_texts(texts, input)
    trained = open_trained(run, step, device)
    show(console, view(trained, read, seed, step), files, trained.folder)

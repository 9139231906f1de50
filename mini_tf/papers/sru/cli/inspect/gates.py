"""`minitf inspect gates`: the gates of a recurrent model."""

from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.inspect.options.texts import INPUT, TEXTS, given_texts
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check
from mini_tf.cli.terminal.options import DEVICE, RUN, STEP

EXAMPLES = ('minitf inspect gates last "The file is closed."', "minitf inspect gates last -i lines.txt -o gates.png")


@command
def gates(
    console: Console,
    run: RUN,
    texts: TEXTS = None,
    input: INPUT = None,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """Show forget and reset gates of every token and layer (attention sru or srupp).

    The table has the means, the time constants 1 / (1 - forget) in tokens, and the share alpha of attention in SRU++,
    whose values over training are in the JSON output.
    """
    from mini_tf.papers.sru.inspection.gates import view
    from mini_tf.trained.opening import open_trained

    files, read = check(output, [".png", ".svg", ".json"], force), given_texts(texts, input)
    trained = open_trained(run, step, device)
    show(console, view(trained, read, step), files, trained.folder)

"""`minitf inspect spans`: how long tokens stay in memory."""

from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.inspect.options.texts import INPUT, TEXTS, given_texts
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check
from mini_tf.cli.terminal.options import DEVICE, RUN, STEP

EXAMPLES = ('minitf inspect spans last "The file is closed."', "minitf inspect spans last -i lines.txt -o spans.png")


@command
def spans(
    console: Console,
    run: RUN,
    texts: TEXTS = None,
    input: INPUT = None,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """Show the span of every token and layer, and the memory in use (attention expire_span).

    A text longer than the context is read in blocks, as in training. The table has the tokens that the next token sees
    (ideal), those that are kept (real), and how many were dropped at the ends of blocks.
    """
    from mini_tf.papers.expire_span.inspection.spans import view
    from mini_tf.trained.opening import open_trained

    files, read = check(output, [".png", ".svg", ".json"], force), given_texts(texts, input)
    trained = open_trained(run, step, device)
    show(console, view(trained, read, step), files, trained.folder)

"""`minitf inspect softmax`: sharpness of attention."""

from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.inspect.options.texts import INPUT, TEXTS, given_texts, with_targets
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check
from mini_tf.cli.terminal.options import DEVICE, RUN, STEP


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
    """Show how sharp the softmax of every head is: entropy, largest weight, saturation, gradient, score range.

    Encoder-decoder: for each text and its own translation.
    """
    from mini_tf.inspection.softmax import view
    from mini_tf.trained.opening import open_trained

    files, read = check(output, [".json"], force), given_texts(texts, input)
    trained = open_trained(run, step, device)
    show(console, view(trained, with_targets(trained, read, None)), files, trained.folder)

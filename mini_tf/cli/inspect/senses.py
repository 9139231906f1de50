"""`minitf inspect senses`: senses of homonyms in the hidden states."""

from mini_tf.cli.inspect.options.data import DATA, LIMIT
from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check
from mini_tf.cli.terminal.options import DEVICE, RUN, STEP


@command
def senses(
    console: Console,
    run: RUN,
    data: DATA = None,
    limit: LIMIT = 100,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """Measure how well each layer separates the gold senses of homonyms.

    The documents have the columns text and senses (one for each word, - for none). Prints for each layer the
    probability that two tokens of one sense are more similar than two of different senses, and two controls: random
    weights and shuffled senses. Encoder-decoder: the encoder is used.
    """
    from mini_tf.inspection.gold.documents import labelled_documents
    from mini_tf.inspection.gold.senses import NEEDED, view
    from mini_tf.trained.opening import open_trained

    files = check(output, [".json"], force)
    trained = open_trained(run, step, device)
    show(console, view(trained, labelled_documents(trained, data, NEEDED, (), limit)), files, trained.folder)

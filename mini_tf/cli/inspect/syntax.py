"""`minitf inspect syntax`: attention heads as parsers."""

from mini_tf.cli.inspect.options.data import DATA, LIMIT
from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check
from mini_tf.cli.terminal.options import DEVICE, RUN, STEP


@command
def syntax(
    console: Console,
    run: RUN,
    data: DATA = None,
    limit: LIMIT = 50,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """Compare attention heads with gold syntax: which head finds the object of a verb, the antecedent of a pronoun?

    The documents have the columns text, heads (indices of words from 0, -1 for a root) and relations, and for pronouns
    antecedents and tags. Prints the accuracy of the best head for each relation, of the best fixed offset, and two
    controls: random weights and shuffled labels. Encoder-decoder: the encoder is used.
    """
    from mini_tf.inspection.gold.documents import labelled_documents
    from mini_tf.inspection.gold.syntax import NEEDED, OPTIONAL
    from mini_tf.inspection.gold.syntax_view import view
    from mini_tf.trained.opening import open_trained

    files = check(output, [".json"], force)
    trained = open_trained(run, step, device)
    show(console, view(trained, labelled_documents(trained, data, NEEDED, OPTIONAL, limit)), files, trained.folder)

"""`minitf inspect answers`: recall of answer words by distance."""

from mini_tf.cli.inspect.options.data import DATA, LIMIT
from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check
from mini_tf.cli.terminal.options import DEVICE, RUN, STEP


@command
def answers(
    console: Console,
    run: RUN,
    data: DATA = None,
    limit: LIMIT = 100,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """Measure how often a model predicts the answer words that earlier words determine, by distance.

    The documents have the columns text and answers (indices of words from 0), as corridor, copy and associative-recall,
    or cue (indices of a word and of the one it decides), as world. Prints accuracy and log-probability, and two
    controls: random weights and answers of other documents. For models that predict the next or a masked token.
    """
    from mini_tf.inspection.gold.answers import ANSWERS, CUE
    from mini_tf.inspection.gold.answers_view import view
    from mini_tf.inspection.gold.documents import labelled_documents
    from mini_tf.trained.opening import open_trained

    files = check(output, [".json"], force)
    trained = open_trained(run, step, device)
    show(
        console,
        view(trained, labelled_documents(trained, data, (), (), limit, listed=(ANSWERS, CUE))),
        files,
        trained.folder,
    )

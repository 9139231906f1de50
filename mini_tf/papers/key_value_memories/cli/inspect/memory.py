"""`minitf inspect memory`: feed-forward layers as key-value memories."""

from typing import Annotated

import typer

from mini_tf.cli.inspect.options.heads import LAYER, STACK, joined
from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check
from mini_tf.cli.terminal.options import DEVICE, INPUT_OUTPUT, RUN, STEP
from mini_tf.cli.terminal.text_input import refuse_non_utf8

EXAMPLES = (
    "minitf inspect memory last --corpus my.txt",
    "minitf inspect memory last --memory 3:511 --memory 2:0-9 --top 10",
    'minitf inspect memory last --text "The file is"',
)
CORPUS = typer.Option(
    "--corpus",
    metavar="DATA",
    help="Texts of any size, as data.train: files, a built-in corpus.",
    show_default="the run's data.train",
    rich_help_panel=INPUT_OUTPUT,
)
LIMIT = typer.Option("--limit", metavar="N", min=1, help="Only the first N documents.", rich_help_panel=INPUT_OUTPUT)
MEMORY = typer.Option(
    "--memory", metavar="L:I", help="Only memory I of layer L, from 0; both may be lists, 0:3,5-7. Repeatable."
)
TOP = typer.Option(
    "--top", metavar="N", min=1, max=1000, help="Triggers and votes of each memory, and memories of --text."
)
TEXT = typer.Option(
    "--text", metavar="TEXT", help="Split the logit of the token that the model predicts after this text."
)


@command
def memory(
    console: Console,
    run: RUN,
    corpus: Annotated[str | None, CORPUS] = None,
    limit: Annotated[int | None, LIMIT] = None,
    layer: LAYER = None,
    memories: Annotated[list[str] | None, MEMORY] = None,
    top: Annotated[int, TOP] = 5,
    text: Annotated[str | None, TEXT] = None,
    stack: STACK = None,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """Show feed-forward layers as key-value memories: what triggers each memory, and what its value votes for.

    Prints for each layer how often the most probable token of a value follows the text that activates the memory most,
    beside chance, and the strongest memories, or those chosen. With --text alone no corpus is read.
    """
    refuse_non_utf8([text or ""], "--text")
    files = check(output, [".json"], force)
    from mini_tf.papers.key_value_memories.inspection.view import MemoryRequest, view
    from mini_tf.trained.opening import open_trained

    trained = open_trained(run, step, device)
    request = MemoryRequest(corpus, limit, joined(layer), tuple(memories or ()), top, text, stack)
    show(console, view(trained, request), files, trained.folder)

"""`minitf inspect simple`: attention without parameters, step by step, without a model."""

from typing import Annotated

import typer

from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.text_input import refuse_non_utf8

EXAMPLES = ('minitf inspect simple "I love bears"',)


@command
def simple(
    console: Console,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="A few words.", show_default="I love bears")
    ] = "I love bears",
) -> None:
    """Compute attention without parameters, softmax(X X^T) X, step by step."""
    from mini_tf.papers.simple.inspection.simple_steps import view

    refuse_non_utf8([text], "the text")
    show(console, view(text.split()))

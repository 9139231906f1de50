"""`minitf inspect simple`: attention without parameters, step by step; needs no run."""

from typing import Annotated

import typer

from mini_tf.cli.inspect.showing import show
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.lines import refuse_broken


@command
def simple(console: Console, text: Annotated[str, typer.Argument(metavar="TEXT", help="A few words.")] = "I love bears") -> None:
    """Attention without parameters, softmax(X X^T) X, step by step: vectors, scores, weights, outputs."""
    from mini_tf.inspection.simple import view

    refuse_broken([text], "the text")
    show(console, view(text.split()))

"""The labelled documents of a view."""

from typing import Annotated

import typer

from mini_tf.cli.terminal.options import INPUT_OUTPUT

DATA = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DATA",
        help="Labelled documents: world, {kind: world, seed: 1}, or a table with these columns.",
        show_default="the run's validation data",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
LIMIT = Annotated[
    int, typer.Option("--limit", metavar="N", min=2, help="Only the first N documents.", rich_help_panel=INPUT_OUTPUT)
]

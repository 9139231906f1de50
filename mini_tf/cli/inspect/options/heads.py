"""Options that select layers, heads and stacks."""

from collections.abc import Sequence
from typing import Annotated

import typer

HEADS = "Layers and heads"
LAYER = Annotated[
    list[str] | None,
    typer.Option(
        "--layer",
        metavar="0,2-3,-1",
        help="Only these layers, from 0; -1 is the last. Repeatable.",
        rich_help_panel=HEADS,
    ),
]
HEAD = Annotated[
    list[str] | None,
    typer.Option("--head", metavar="1,3", help="Only these heads, from 0. Repeatable.", rich_help_panel=HEADS),
]
STACK = Annotated[
    str | None,
    typer.Option("--stack", metavar="encoder|decoder", help="Of a model with several.", show_default="decoder"),
]


def joined(values: Sequence[str] | None) -> str | None:
    """A repeatable option as one list; None if not given."""
    return ",".join(values) if values else None

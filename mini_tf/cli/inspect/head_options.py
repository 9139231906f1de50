"""The options that choose heads."""

from collections.abc import Sequence
from typing import Annotated

import typer

LAYER = Annotated[
    list[str] | None, typer.Option("--layer", metavar="0,2-3,-1", help="Only these layers, from 0; -1 is the last. Repeatable.")
]
HEAD = Annotated[list[str] | None, typer.Option("--head", metavar="1,3", help="Only these heads of each layer, from 0. Repeatable.")]


def joined(asked: Sequence[str] | None) -> str | None:
    """An option that is given several times names all that is in them; None where it is not given."""
    return ",".join(asked) if asked else None

"""The texts that a view looks at: arguments, lines of a file, or lines that come through a pipe."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mini_tf.cli.lines import lines_of, one_source, refuse_broken
from mini_tf.errors import UsageFault

TEXTS = Annotated[list[str] | None, typer.Argument(metavar="[TEXT ...]", help="Texts; else lines of stdin.")]
INPUT = Annotated[Path | None, typer.Option("-i", "--input", metavar="FILE", help="Read texts by line from a file.")]


def given_texts(texts: Sequence[str] | None, file: Path | None) -> list[str]:
    """One text or more; UsageFault where there is none, or texts and a file."""
    one_source(texts, file)
    refuse_broken(texts or [])
    if not texts and file is None and sys.stdin.isatty():
        raise UsageFault("there is no text to look at", hint='give one: "a text", or -i FILE')
    found = list(texts or lines_of(file))
    if not found:
        raise UsageFault("there is no text to look at", hint=f"{file or 'stdin'} has no line")
    return found

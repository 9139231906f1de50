"""The texts that a view looks at: arguments, lines of a file, or lines of a pipe; and what a model of pairs writes of them."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.terminal.text_input import one_source, read_lines, refuse_non_utf8
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.trained.opening import Trained

TEXTS = Annotated[list[str] | None, typer.Argument(metavar="[TEXT ...]", help="Texts; else lines of stdin.")]
TARGET = Annotated[
    str | None,
    typer.Option("--target", metavar="TEXT", help="Of an encoder-decoder: what is written of it (default: its own translation)."),
]
INPUT = Annotated[Path | None, typer.Option("-i", "--input", metavar="FILE", help="Read texts by line from a file.")]


def given_texts(texts: Sequence[str] | None, file: Path | None) -> list[str]:
    """One text or more; UsageFault where there is none, or texts and a file."""
    one_source(texts, file)
    refuse_non_utf8(texts or [])
    if not texts and file is None and sys.stdin.isatty():
        raise UsageFault("there is no text to look at", hint='give one: "a text", or -i FILE')
    found = list(texts or read_lines(file))
    if not found:
        raise UsageFault("there is no text to look at", hint=f"{file or 'stdin'} has no line")
    return found


def with_targets(trained: "Trained", texts: Sequence[str], target: str | None) -> list[tuple[str, str | None]]:
    """Each text with what a model of pairs writes of it: `target`, or its own best translation; None for a model of one stack.

    UsageFault where that is given a target, or one target is given for several texts.
    """
    from mini_tf.generation.translation import Translator

    if not trained.model.needs_source:
        if target is not None:
            kind = trained.recipe.model.kind
            raise UsageFault(f"--target: a model of the kind {kind} reads one text, no pairs", hint="leave --target out")
        return [(text, None) for text in texts]
    if target is not None and len(texts) > 1:
        raise UsageFault(f"--target is one text, but there are {len(texts)} sources", hint="give one SOURCE")
    if target is not None:
        return [(texts[0], target)]
    translator = Translator(trained.model, trained.tokenizer, trained.source_tokenizer, trained.recipe.generate)
    return [(text, best[0].text) for text, best in zip(texts, translator.translate(texts), strict=True)]

"""The texts of a view: arguments, lines of a file or stdin; and their targets for an encoder-decoder."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.terminal.options import INPUT_OUTPUT
from mini_tf.cli.terminal.text_input import one_source, read_lines, refuse_non_utf8
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.trained.opening import Trained

TEXTS = Annotated[list[str] | None, typer.Argument(metavar="[TEXT ...]", help="Texts; without any, lines of stdin.")]
TARGET = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TEXT",
        help="Target text (encoder-decoder).",
        show_default="its own translation",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
INPUT = Annotated[
    Path | None,
    typer.Option(
        "-i", "--input", metavar="FILE", help="Read texts from the lines of a file.", rich_help_panel=INPUT_OUTPUT
    ),
]


def given_texts(texts: Sequence[str] | None, file: Path | None) -> list[str]:
    """At least one text; UsageFault if there is none, or both arguments and a file."""
    one_source(texts, file)
    refuse_non_utf8(texts or [])
    if not texts and file is None and sys.stdin.isatty():
        raise UsageFault("no text given", hint='give one: "a text", or -i FILE')
    found = list(texts or read_lines(file))
    if not found:
        raise UsageFault("no text given", hint=f"{file or 'stdin'} has no lines")
    return found


def with_targets(trained: "Trained", texts: Sequence[str], target: str | None) -> list[tuple[str, str | None]]:
    """Each text with its target: `target`, or the encoder-decoder's best translation; None for other models.

    UsageFault for a target without an encoder-decoder, or one target for several texts.
    """
    from mini_tf.generation.translation import Translator

    if not trained.model.needs_source:
        if target is not None:
            kind = trained.recipe.model.kind
            raise UsageFault(
                f"--target needs an encoder_decoder, but this model is of kind {kind}", hint="remove --target"
            )
        return [(text, None) for text in texts]
    if target is not None and len(texts) > 1:
        raise UsageFault(f"--target is one text for {len(texts)} sources", hint="give one source")
    if target is not None:
        return [(texts[0], target)]
    translator = Translator(trained.model, trained.tokenizer, trained.source_tokenizer, trained.recipe.generate)
    return [(text, best[0].text) for text, best in zip(texts, translator.translate(texts), strict=True)]

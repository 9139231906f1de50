"""`minitf inspect word`: one word in several sentences."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.inspect.output import show
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check
from mini_tf.cli.terminal.options import DEVICE, RUN, STEP
from mini_tf.cli.terminal.text_input import one_source, read_lines, refuse_non_utf8
from mini_tf.system.errors import DataFault, UsageFault

if TYPE_CHECKING:
    from mini_tf.inspection.sentences import Sentence

SUFFIXES = (".png", ".svg", ".json")
MOST_SENTENCES = 500
INPUT = Annotated[
    Path | None,
    typer.Option("-i", "--input", metavar="FILE", help="Sentences by line; or .jsonl with text and, if wanted, word and sense."),
]


@command
def word(
    console: Console,
    run: RUN,
    word: Annotated[str, typer.Argument(metavar="WORD", help="A whole word, case as in the texts.")],
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT ...]", help="Two or more sentences that hold it.")] = None,
    input: INPUT = None,
    layer: Annotated[
        int | None, typer.Option("--layer", metavar="N", help="Draw this layer's pairs alone: 0 is the embedding, -1 the last.")
    ] = None,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """How alike a word's vectors are in several sentences, after each layer, beyond what any two words are.

    Where a sentence holds the word several times, its first occurrence is compared.

    Of an encoder-decoder it is the encoder that reads the sentences.
    """
    from mini_tf.inspection.word import view
    from mini_tf.trained.opening import open_trained

    files = check(output, SUFFIXES, force)
    if not texts and input is None and not sys.stdin.isatty():
        input = Path("-")
    sentences = _sentences(word, texts, input)
    trained = open_trained(run, step, device)
    show(console, view(trained, word, sentences, layer, UsageFault if input is None else DataFault, step), files, trained.folder)


def _sentences(word: str, texts: list[str] | None, input: Path | None) -> "list[Sentence]":
    from mini_tf.inspection.sentences import Sentence, read

    refuse_non_utf8([word], "WORD")
    refuse_non_utf8(texts or [], "a text")
    if not word.strip():
        raise UsageFault("WORD is empty")
    one_source(texts, input)
    name = "stdin" if input == Path("-") else str(input)
    if input is not None:
        found = list(read(read_lines(input), name, word))
    else:
        found = [Sentence(text, f"text {number}") for number, text in enumerate(texts or [], 1)]
    if not 2 <= len(found) <= MOST_SENTENCES:
        where = "" if input is None else f" of {word!r} in {name}"
        hint = "give texts, or a file of sentences such as the project's data/senses.jsonl: -i FILE"
        raise UsageFault(f"2 to {MOST_SENTENCES} sentences{where} are compared, not {len(found)}", hint=hint)
    return found

"""`minitf inspect word`: contextual embeddings of one word in several sentences."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.inspect import word_vectors
from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check
from mini_tf.cli.terminal.options import DEVICE, INPUT_OUTPUT, RUN, STEP
from mini_tf.cli.terminal.text_input import one_source, read_lines, refuse_non_utf8
from mini_tf.system.errors import DataFault, UsageFault

if TYPE_CHECKING:
    from mini_tf.inspection.sentences import Sentence

SUFFIXES = (".png", ".svg", ".json")
MOST_SENTENCES = 500
INPUT = Annotated[
    Path | None,
    typer.Option(
        "-i",
        "--input",
        metavar="FILE",
        help="Read sentences from lines, or .jsonl with text, and optionally word and sense.",
        rich_help_panel=INPUT_OUTPUT,
    ),
]


@command
def word(
    console: Console,
    run: RUN,
    word: Annotated[str | None, typer.Argument(metavar="[WORD]", help="A word, in the case of the texts.")] = None,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT ...]", help="Two or more sentences with the word.")
    ] = None,
    input: INPUT = None,
    layer: Annotated[
        int | None,
        typer.Option("--layer", metavar="N", help="Show the pairs of this layer: 0 is the embedding, -1 the last."),
    ] = None,
    neighbors: word_vectors.NEIGHBORS = None,
    analogy: word_vectors.ANALOGY = None,
    similarity: word_vectors.SIMILARITY = None,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """Compare the contextual embeddings of a word in several sentences, layer by layer.

    Prints cosine similarities minus the mean similarity of any two words, and, if senses are given, the difference
    between similarities within and between senses. The first occurrence in each sentence counts. Encoder-decoder: the
    encoder is used. With --neighbors, --analogy or --similarity the token embedding is shown, without sentences.
    """
    from mini_tf.inspection.vectors.word_vectors import WordVectors
    from mini_tf.inspection.word import view
    from mini_tf.trained.opening import open_trained

    view_of = word_vectors.vectors_view(word, bool(texts) or input is not None, neighbors, analogy, similarity)
    files = check(output, SUFFIXES if view_of is None else word_vectors.SUFFIXES, force)
    if view_of is not None:
        trained = open_trained(run, step, device)
        show(console, view_of(WordVectors.of(trained)), files, trained.folder)
        return
    assert word is not None
    if not texts and input is None and not sys.stdin.isatty():
        input = Path("-")
    sentences = _sentences(word, texts, input)
    trained = open_trained(run, step, device)
    show(
        console,
        view(trained, word, sentences, layer, UsageFault if input is None else DataFault, step),
        files,
        trained.folder,
    )


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
        hint = "give texts, or -i FILE with sentences, such as data/senses.jsonl"
        raise UsageFault(f"2 to {MOST_SENTENCES} sentences{where} can be compared, got {len(found)}", hint=hint)
    return found

"""Options of `minitf inspect word` for word vectors without a sentence: neighbors, analogies, human similarity."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.terminal.text_input import read_lines, refuse_non_utf8
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.inspection import View
    from mini_tf.inspection.vectors.word_vectors import WordVectors

PANEL = "Word vectors"
SUFFIXES = (".json",)
DEFAULT_TOKENS = 10
NEIGHBORS = Annotated[
    int | None,
    typer.Option(
        "--neighbors",
        "--neighbours",
        metavar="N",
        min=1,
        help="Show the N tokens with the nearest embeddings.",
        rich_help_panel=PANEL,
    ),
]
ANALOGY = Annotated[
    str | None,
    typer.Option(
        "--analogy",
        metavar="'A B C'",
        help="A is to B as C is to ?: the tokens nearest to B - A + C.",
        rich_help_panel=PANEL,
    ),
]
SIMILARITY = Annotated[
    Path | None,
    typer.Option(
        "--similarity",
        metavar="FILE",
        help="Correlate with human similarity: lines of two words and a number, divided by tabs or commas.",
        rich_help_panel=PANEL,
    ),
]


def vectors_view(
    word: str | None, has_texts: bool, neighbors: int | None, analogy: str | None, similarity: Path | None
) -> "Callable[[WordVectors], View] | None":
    """The view that the options ask for; None without them. UsageFault for contradictions."""
    given = {"--analogy": analogy is not None, "--similarity": similarity is not None}
    options = [name for name, is_given in given.items() if is_given]
    if neighbors is not None and analogy is None:
        options.insert(0, "--neighbors")
    if not options:
        if word is None:
            raise UsageFault("WORD is missing", hint="or give --analogy 'A B C' or --similarity FILE")
        return None
    if len(options) > 1:
        raise UsageFault(f"{' and '.join(options)} exclude each other", hint="give one of them")
    if has_texts:
        raise UsageFault(f"{options[0]} compares token embeddings without sentences", hint="remove the sentences")
    if (word is None) == (options[0] == "--neighbors"):
        raise UsageFault(f"{options[0]} {'needs' if word is None else 'takes no'} WORD")
    from mini_tf.inspection.vectors import similarity as similarities
    from mini_tf.inspection.vectors import word_vectors

    refuse_non_utf8([word or "", analogy or ""], "a word")
    if similarity is not None:
        name = "stdin" if similarity == Path("-") else str(similarity)
        pairs = similarities.read_pairs(list(read_lines(similarity)), name)
        return lambda vectors: similarities.similarity_view(vectors, pairs, name)
    if analogy is not None:
        words = analogy.split()
        return lambda vectors: word_vectors.analogy_view(vectors, words, neighbors or DEFAULT_TOKENS)
    return lambda vectors: word_vectors.neighbors_view(vectors, str(word), neighbors or DEFAULT_TOKENS)

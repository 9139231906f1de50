"""Where a command's tokenizer comes from: a file, a folder with one, or a run by its name."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.terminal.console import Console
from mini_tf.cli.terminal.lines import refuse_broken

if TYPE_CHECKING:
    from mini_tf.data.tokenization.tokenizer import Tokenizer

SOURCE = Annotated[str, typer.Argument(metavar="RUN|FILE", help="A run, a tokenizer.json, vocab.txt, vocab.json, or a folder with one.")]


def open_tokenizer(console: Console, source: str) -> "Tokenizer":
    """A file, or a folder with one, by its path; else the tokenizer of the run of this name. Tells what was assumed of it."""
    from mini_tf.data.tokenization import loading
    from mini_tf.data.tokenization.tokenizer import Tokenizer
    from mini_tf.run import finding

    refuse_broken([source], "the name of the tokenizer")
    path = Path(source)
    by_path = os.path.isfile(path) or path.suffix in (".json", ".txt") or loading.find_tokenizer_file(path) is not None
    place = path if by_path and source != "last" else finding.find(source)
    tokenizer = Tokenizer.load(place)
    if os.path.isfile(other := place / "source_tokenizer.json"):
        console.say(f"this is the tokenizer of the targets; that of the sources is {other}")
    for note in tokenizer.notes:
        console.say(note)
    return tokenizer

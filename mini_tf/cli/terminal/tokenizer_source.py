"""The tokenizer that a command takes: a file, a folder with one, or a run."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.terminal.completion import run_names
from mini_tf.cli.terminal.console import Console
from mini_tf.cli.terminal.loading import find_run
from mini_tf.recipe.text_input import refuse_non_utf8

if TYPE_CHECKING:
    from mini_tf.data.tokenization.tokenizer import Tokenizer

SOURCE = Annotated[
    str,
    typer.Argument(
        metavar="RUN|FILE",
        help="A run, or a tokenizer.json, vocab.txt, vocab.json or a folder with one.",
        autocompletion=run_names,
    ),
]


def open_tokenizer(console: Console, source: str) -> "Tokenizer":
    """The tokenizer of a file, a folder with one, or a run of this name; prints assumptions about a foreign one."""
    from mini_tf.data.tokenization.tokenizer import Tokenizer

    location = _location(source)
    tokenizer = Tokenizer.load(location)
    if os.path.isfile(other := location / "source_tokenizer.json"):
        console.say(f"this is the target tokenizer; the source tokenizer is {other}")
    for note in tokenizer.notes:
        console.say(note)
    return tokenizer


def open_prompt_tokenizer(console: Console, source: str) -> "Tokenizer":
    """`open_tokenizer`; that of a run reads [MASK] as its model does."""
    from mini_tf.run import manifest
    from mini_tf.trained.framing import TokenizersOfRun, prompt_tokenizer
    from mini_tf.trained.opening import read_recipe_and_tokenizers

    tokenizer, location = open_tokenizer(console, source), _location(source)
    if not (location / manifest.NAME).is_file():
        return tokenizer
    return prompt_tokenizer(TokenizersOfRun(*read_recipe_and_tokenizers(location)))


def _location(source: str) -> Path:
    from mini_tf.data.tokenization import tokenizer_files
    from mini_tf.recipe.parsing.run_paths import run_around

    refuse_non_utf8([source], "the name of the tokenizer")
    path = Path(source)
    by_path = (
        (os.path.isfile(path) and run_around(path) is None)
        or path.suffix in (".json", ".txt")
        or tokenizer_files.find_tokenizer_file(path) is not None
    )
    return path if by_path and source != "last" else find_run(source, has_step=False)

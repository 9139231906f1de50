"""Load a recipe, a tokenizer or the model of a run; a wrong name is refused before PyTorch is imported (seconds).

Waits of `at_terminal` are said at a terminal alone: a script needs no line that depends on the load of the machine.
"""

import os
import re
import shlex
import sys
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.terminal.completion import run_names
from mini_tf.cli.terminal.console import ARGUMENTS, Console
from mini_tf.cli.terminal.streams import is_terminal
from mini_tf.recipe.text_input import one_source, refuse_non_utf8
from mini_tf.system.errors import UsageFault
from mini_tf.system.progress import show_progress

if TYPE_CHECKING:
    from mini_tf.data.tokenization.tokenizer import Tokenizer
    from mini_tf.recipe.reading import Resolved
    from mini_tf.trained.opening import Trained
TEXTS = Annotated[list[str] | None, typer.Argument(metavar="[TEXT ...]", help="Texts; without any, lines of stdin.")]


def check_texts(texts: Sequence[str] | None, input: Path | None) -> None:
    """UsageFault unless a command has one source of texts: TEXTS, or -i FILE, or a pipe as stdin."""
    refuse_non_utf8(texts or [])
    one_source(texts, input)
    if not texts and input is None and sys.stdin.isatty():
        raise UsageFault("no text given", hint='give one: "a text", or -i FILE')


def note_words(console: Console, texts: Sequence[str] | None) -> None:
    """Say how a text of several words is given, where each of several texts is a word.

    Not of scripts from Thai on in the order of Unicode, of which some have no blanks between words.
    """
    if texts and len(texts) > 1 and all(re.fullmatch(r"[^\s\u0e00-\U0010ffff]+", text) for text in texts):
        console.say(f"{len(texts)} texts of one word each; a text of several words stands in quotes: {_quoted(texts)}")


def _quoted(texts: Sequence[str]) -> str:
    text = " ".join(texts)
    return shlex.quote(text if len(text) <= 80 else f"{text[:77]}...")


def at_terminal(operation: str) -> AbstractContextManager[Any]:
    """`show_progress`, if stderr is a terminal."""
    return show_progress(operation) if is_terminal(sys.stderr) else nullcontext()


loading_torch = partial(at_terminal, "loading PyTorch")


def resolve_arguments(arguments: Sequence[str] | None) -> "Resolved":
    """The recipe of [RECIPE] [KEY=VALUE ...]."""
    from mini_tf.recipe.arguments import split_arguments
    from mini_tf.run.identity import resolve

    recipe, overrides = split_arguments(arguments or [])
    with at_terminal("loading PyTorch and the recipe"):
        return resolve(recipe, overrides)


def open_model(
    run: str, step: str | None, device: str, average: str | None = None, ensembles: bool = False
) -> "Trained":
    """`open_trained`. ensembles: of a set of runs all models, as `open_ensemble` does."""
    check_run(run, step, device)
    with at_terminal("loading PyTorch and the model"):
        from mini_tf.trained.ensembles import open_ensemble
        from mini_tf.trained.opening import open_trained

        return (open_ensemble if ensembles else open_trained)(run, step, device, average)


FLAGS = ("-q", "--quiet", "-v", "--verbose", "--json", "--debug", "-h", "--help")
"""Options of every command that take no value."""


def split_options(arguments: Sequence[str], flags: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """The words of a command line, and its options with their values. flags: more options that take no value."""
    words, options, takes_value = list[str](), list[str](), False
    for argument in arguments:
        is_option = re.match("--|-[A-Za-z]", argument) is not None
        (options if is_option or takes_value else words).append(argument)
        takes_value = re.fullmatch(r"--[\w-]+|-[A-Za-z]", argument) is not None and argument not in (*FLAGS, *flags)
    return words, options


_FILE_OPTION = {"evaluate": "--data", "generate": "-i", "predict": "-i", "embed": "-i"}
"""The option that reads a file, by command."""


def find_run(run: str, has_step: bool = True) -> Path:
    """`find`; where a text or a file stands in place of a run, the hint is the command with the newest run.

    has_step: the command has --step, which a checkpoint in place of a run is answered with.
    """
    from mini_tf.recipe.parsing.run_paths import names_run, run_around
    from mini_tf.run.finding import OUTPUTS, NoSuchRun, find, list_runs

    try:
        return find(run)
    except NoSuchRun as fault:
        if has_step and fault.around is not None and fault.around[1] is not None:
            fault.hint = f"{fault.hint}; its checkpoint: --step {fault.around[1]}"
        # what stands before the run takes no value, or it would not be the run
        words, options = split_options(sys.argv[1:], [before for before, word in pairwise(sys.argv) if word == run])
        if run in words:
            at, inserted = words.index(run), [run]
            before, after = words[:at], words[at + 1 :]
            if (named := next(filter(names_run, after), None)) is not None:
                after.remove(named)
            if os.path.isfile(run) and before and run_around(Path(run)) is None and before[0] in _FILE_OPTION:
                inserted = [_FILE_OPTION[before[0]], run]
            takes_text = bool({"prompts", "texts"} & ARGUMENTS.get())
            if inserted != [run] or (any(map(str.isspace, run)) and len(run) <= 200 and takes_text):
                command = shlex.join(["minitf", *before, named or "last", *inserted, *after, *options])
                way = f"`{command}`" if list_runs(OUTPUTS) else "`minitf pretrain` creates one"
                fault.hint = f"the run comes first: {way}"
        raise


def runs_of(run: str) -> list[Path]:
    """The folders of a set's runs, or the one of a single run. RunFault if there is no such run."""
    from mini_tf.run.finding import member_folders

    folder = find_run(run)
    return member_folders(folder) or [folder]


def check_run(run: str, step: str | None = None, device: str = "auto") -> None:
    """RunFault if there is no such run or checkpoint, UsageFault if no checkpoint or device can have such a name."""
    from mini_tf.recipe.sections import Runtime
    from mini_tf.run.checkpoint import Checkpoints

    folder = find_run(run)
    Runtime.on(device)
    if step is not None:
        Checkpoints.of(folder).find(step)


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

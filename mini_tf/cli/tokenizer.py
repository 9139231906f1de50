"""`minitf tokenizer`: learn one, see how it cuts a text, and turn ids back into text."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, check, write
from mini_tf.cli.terminal.lines import lines_of, one_source, refuse_broken
from mini_tf.cli.terminal.options import RECIPE
from mini_tf.cli.terminal.sources import SOURCE, open_tokenizer
from mini_tf.system.errors import DataFault, MinitfError, RecipeFault, UsageFault
from mini_tf.system.plain_file import file_type

if TYPE_CHECKING:
    from mini_tf.data.tokenization.tokenizer import Tokenizer

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Learn a tokenizer, and see what it makes of a text.")


@app.command("train")
@command
def train(
    console: Console,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The tokenizer.json to write.")],
    arguments: RECIPE = None,
    force: FORCE = False,
) -> None:
    """Learn the tokenizer that a recipe asks for from its training text; the file works here and in Hugging Face's library."""
    from mini_tf.data.raw import RawData
    from mini_tf.recipe.arguments import split_arguments
    from mini_tf.run.kind_sources import resolve

    check([output], [".json"], force)
    recipe = resolve(*split_arguments(arguments or [])).recipe
    if recipe.tokenizer.path is not None:
        raise RecipeFault(f"tokenizer.path: {recipe.tokenizer.path} is trained already", hint="tokenizer.path=null trains another")
    tokenizer = RawData(recipe.objective.dataset(), recipe.data).tokenizers(recipe.tokenizer).target
    if tokenizer.vocabulary.size == len(tokenizer.special_tokens):
        raise DataFault("the training side of the text has nothing to learn from", hint=f"data.split holds {recipe.data.split} of it out")
    write(output, tokenizer.to_json().encode())
    size = tokenizer.vocabulary.size
    fewer = recipe.tokenizer.chooses_size and size < recipe.tokenizer.vocab_size
    asked = f"; the text has no use for the {recipe.tokenizer.vocab_size:,} that were asked for" if fewer else ""
    console.say(f"{tokenizer.kind}: {size:,} tokens{asked}")
    for line in _losses(tokenizer):
        console.say(line)
    result = {"path": str(output), "kind": tokenizer.kind, "vocabulary": size, "losses": tokenizer.losses}
    console.answer(str(output), result=result)


@app.command("encode")
@command
def encode(
    console: Console,
    source: SOURCE,
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT ...]", help="Texts; else lines of stdin.")] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="Print the pieces instead of their ids.")] = False,
) -> None:
    """The ids of each text, a line each, without special tokens; with --json an envelope a text, none without texts."""
    refuse_broken(texts or [])
    tokenizer = open_tokenizer(console, source)
    for text in texts or lines_of(None):
        ids, spans = tokenizer.spans(text)
        shown = tokenizer.pieces(ids)
        if console.json:
            console.emit_json(result={"text": text, "ids": ids.tolist(), "pieces": shown, "spans": spans})
        else:
            console.print_product(" ".join(map(repr, shown) if pieces else map(str, ids)))


@app.command("decode")
@command
def decode(
    console: Console,
    source: SOURCE,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID ...]", help="Ids of one text; else lines of stdin, a text each.")] = None,
) -> None:
    """The text of ids, special tokens left out; of a line of stdin a line, with newlines as \\n; with --json an envelope a text."""
    tokenizer = open_tokenizer(console, source)
    for row, by_line in _rows(ids, tokenizer.vocabulary.size):
        text = tokenizer.decode(row)
        if console.json:
            console.emit_json(result={"ids": row, "text": text})
        else:
            console.print_product(text.replace("\n", "\\n") if by_line else text)


@app.command("stats")
@command
def stats(
    console: Console,
    source: SOURCE,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="Also how it fares on this text.")] = None,
    input: Annotated[Path | None, typer.Option("-i", "--input", metavar="FILE", help="Or on the text of a file.")] = None,
) -> None:
    """What a tokenizer is and what it loses; with a text, how it fares on it and whether the text comes back."""
    from mini_tf.data.tokenization.usage import measure, pieces_by_length

    given = [] if text is None else [text]
    one_source(given, input)
    refuse_broken(given)
    tokenizer = open_tokenizer(console, source)
    result: dict[str, Any] = {
        "kind": tokenizer.kind,
        "vocabulary": tokenizer.vocabulary.size,
        "special_tokens": tokenizer.special_tokens,
        "losses": tokenizer.losses,
        "pieces_by_length": pieces_by_length(tokenizer),
    }
    lines = [f"{tokenizer.kind}: {tokenizer.vocabulary.size:,} tokens"]
    lines += ["special tokens: " + (", ".join(f"{name} {id}" for name, id in tokenizer.special_tokens.items()) or "none")]
    lines += ["pieces by length: " + ", ".join(f"{length}: {n:,}" for length, n in result["pieces_by_length"].items())]
    lines += _losses(tokenizer)
    if input is not None:
        text = _content(input)
    if text is not None:
        result["text"] = measure(tokenizer, text)
        lines += ["", *_fares(result["text"])]
    console.answer("\n".join(lines), result=result)


def _losses(tokenizer: "Tokenizer") -> list[str]:
    return [f"it loses: {loss}" for loss in tokenizer.losses] or ["it loses nothing: every text comes back from its ids"]


def _rows(ids: list[str] | None, size: int) -> Iterator[tuple[list[int], bool]]:
    """The ids of each text, and whether it was a line of stdin."""
    if ids:
        yield _numbers(" ".join(ids).split(), size, UsageFault), False
        return
    for number, line in enumerate(lines_of(None), 1):
        yield _numbers(line.split(), size, DataFault, f"stdin:{number}"), True


def _numbers(words: Sequence[str], size: int, fault: type[MinitfError], *where: str) -> list[int]:
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) < 12 and int(word) < size):
            raise fault(f"{word[:40]!r} is no id of this tokenizer: ids are 0 to {size - 1}", where=where)
    return [int(word) for word in words]


def _content(file: Path) -> str:
    try:
        with file.open("rb") as given:  # a pipe too: -i <(command)
            if (what := file_type(os.fstat(given.fileno()).st_mode)) == "a device":  # some never end
                raise DataFault(f"--input {file}: it is {what}", where=[str(file)])
            data = given.read()
        return data.decode("utf-8").removeprefix("\ufeff")
    except OSError as error:
        raise DataFault(f"--input {file}: {error.strerror}", where=[str(file)]) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataFault(f"line {line} is not UTF-8", where=[f"{file}:{line}"]) from error


def _fares(measured: dict[str, Any]) -> list[str]:
    """What was measured on a text, as lines."""
    names = {
        "tokens": "tokens",
        "bytes": "bytes",
        "words": "words",
        "tokens_per_word": "tokens a word",
        "bytes_per_token": "bytes a token",
        "unknown_tokens": "unknown tokens",
    }
    lines = [f"{words:<16} {_number(measured[name]):>12}" for name, words in names.items()]
    lines += [f"{'vocabulary used':<16} {measured['vocabulary_used']:>12.1%}"]
    for words, key in (("most frequent", "most_frequent"), ("least frequent", "least_frequent")):
        lines += [f"{words + ':':<16} " + ", ".join(f"{one['piece']!r} {one['count']:,}" for one in measured[key])]
    if measured["unknown"]:
        lines += ["unknown:         " + ", ".join(f"{text!r} {n:,}" for text, n in measured["unknown"].items())]
    place = measured["difference"]
    if place is None:
        return [*lines, "the text comes back from its ids exactly"]
    return [
        *lines,
        f"the text does not come back: from character {place['at']} on it is {place['text']!r}, but comes back as {place['back']!r}",
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"

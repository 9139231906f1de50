"""`minitf tokenizer`: train, encode, decode, stats."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, check, write
from mini_tf.cli.terminal.loading import SOURCE, TEXTS, open_tokenizer, resolve_arguments
from mini_tf.cli.terminal.options import RECIPE, io_option
from mini_tf.recipe.text_input import one_source, read_lines, refuse_non_utf8
from mini_tf.system.errors import DataFault, MinitfError, RecipeFault, UsageFault

if TYPE_CHECKING:
    from mini_tf.data.tokenization.tokenizer import Tokenizer


@command
def train(
    console: Console,
    output: Annotated[Path, io_option("-o", "--output", metavar="FILE", help="The tokenizer.json to write.")],
    arguments: RECIPE = None,
    force: FORCE = False,
) -> None:
    check([output], [".json"], force)
    recipe = resolve_arguments(arguments).recipe
    from mini_tf.data.raw import RawData

    if recipe.tokenizer.path is not None:
        raise RecipeFault(
            f"tokenizer.path: {recipe.tokenizer.path} is already trained", hint="tokenizer.path=null trains a new one"
        )
    tokenizer = RawData(recipe.objective.dataset(), recipe.data).tokenizers(recipe.tokenizer).target
    if tokenizer.vocabulary.size == len(tokenizer.special_tokens):
        raise DataFault(
            "the training split is empty", hint=f"data.split={recipe.data.split} takes the rest as validation data"
        )
    write(output, tokenizer.to_json().encode())
    size = tokenizer.vocabulary.size
    fewer = recipe.tokenizer.uses_vocab_size and size < recipe.tokenizer.vocab_size
    requested = f"; the data yields fewer than the {recipe.tokenizer.vocab_size:,} requested" if fewer else ""
    console.say(f"{tokenizer.kind}: {size:,} tokens{requested}")
    for line in _losses(tokenizer):
        console.say(line)
    result = {"path": str(output), "kind": tokenizer.kind, "vocabulary": size, "losses": tokenizer.round_trip_losses}
    console.output(str(output), result=result)


@command
def encode(
    console: Console,
    source: SOURCE,
    texts: TEXTS = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="Print tokens instead of ids.")] = False,
) -> None:
    refuse_non_utf8(texts or [])
    tokenizer = open_tokenizer(console, source)
    for text in texts or read_lines(None):
        ids, spans = tokenizer.spans(text)
        shown = tokenizer.pieces(ids)
        if console.json:
            console.emit_json(result={"text": text, "ids": ids.tolist(), "pieces": shown, "spans": spans})
        else:
            console.print_output(" ".join(map(repr, shown) if pieces else map(str, ids)))


@command
def decode(
    console: Console,
    source: SOURCE,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID ...]", help="Ids of one text; without any, lines of stdin, one text each."),
    ] = None,
) -> None:
    tokenizer = open_tokenizer(console, source)
    for row, by_line in _rows(ids, tokenizer.vocabulary.size):
        text = tokenizer.decode(row)
        if console.json:
            console.emit_json(result={"ids": row, "text": text})
        else:
            console.print_output(text.replace("\n", "\\n") if by_line else text)


@command
def stats(
    console: Console,
    source: SOURCE,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="Measure on this text.")] = None,
    input: Annotated[
        Path | None, io_option("-i", "--input", metavar="FILE", help="Measure on the text of a file.")
    ] = None,
) -> None:
    from mini_tf.data.tokenization.coverage import count_pieces_by_length, text_statistics

    texts = [] if text is None else [text]
    one_source(texts, input)
    refuse_non_utf8(texts)
    tokenizer = open_tokenizer(console, source)
    result: dict[str, Any] = {
        "kind": tokenizer.kind,
        "vocabulary": tokenizer.vocabulary.size,
        "special_tokens": tokenizer.special_tokens,
        "losses": tokenizer.round_trip_losses,
        "pieces_by_length": count_pieces_by_length(tokenizer),
    }
    special = ", ".join(f"{name} {id}" for name, id in tokenizer.special_tokens.items())
    lines = [
        f"{tokenizer.kind}: {tokenizer.vocabulary.size:,} tokens",
        f"special tokens: {special or 'none'}",
        "pieces by length: " + ", ".join(f"{length}: {n:,}" for length, n in result["pieces_by_length"].items()),
        *_losses(tokenizer),
    ]
    if input is not None:
        text = _content(input)
    if text is not None:
        result["text"] = text_statistics(tokenizer, text)
        lines += ["", *_measured_lines(result["text"])]
    console.output("\n".join(lines), result=result)


def _losses(tokenizer: "Tokenizer") -> list[str]:
    losses = [f"not reversible: {loss}" for loss in tokenizer.round_trip_losses]
    return losses or ["reversible: decode(encode(text)) == text"]


def _rows(ids: list[str] | None, size: int) -> Iterator[tuple[list[int], bool]]:
    """The ids of each text, and whether they come from stdin."""
    if ids:
        yield _numbers(" ".join(ids).split(), size, UsageFault), False
        return
    for number, line in enumerate(read_lines(None), 1):
        yield _numbers(line.split(), size, DataFault, f"stdin:{number}"), True


def _numbers(words: Sequence[str], size: int, fault: type[MinitfError], *where: str) -> list[int]:
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) < 12 and int(word) < size):
            raise fault(f"{word[:40]!r} is not an id of this tokenizer: ids are 0 to {size - 1}", where=where)
    return [int(word) for word in words]


def _content(file: Path) -> str:
    from mini_tf.system.safe_files import file_type

    try:
        with file.open("rb") as stream:  # a pipe too: -i <(command)
            if (kind := file_type(os.fstat(stream.fileno()).st_mode)) == "a device":  # some never end
                raise DataFault(f"--input {file}: it is {kind}", where=[str(file)])
            data = stream.read()
        return data.decode("utf-8").removeprefix("\ufeff")
    except OSError as error:
        raise DataFault(f"--input {file}: {error.strerror}", where=[str(file)]) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataFault(f"line {line} is not UTF-8", where=[f"{file}:{line}"]) from error


def _measured_lines(measured: dict[str, Any]) -> list[str]:
    """The measurements on a text, as lines."""
    names = ("tokens", "bytes", "words", "tokens_per_word", "bytes_per_token", "unknown_tokens")
    lines = [f"{name.replace('_', ' '):<16} {_number(measured[name]):>12}" for name in names]
    lines += [f"{'vocabulary used':<16} {measured['vocabulary_used']:>12.1%}"]
    for words, key in (("most frequent", "most_frequent"), ("least frequent", "least_frequent")):
        lines += [
            f"{words + ':':<16} " + ", ".join(f"{token['piece']!r} {token['count']:,}" for token in measured[key])
        ]
    if measured["unknown"]:
        lines += ["unknown:         " + ", ".join(f"{text!r} {n:,}" for text, n in measured["unknown"].items())]
    first = measured["difference"]
    if first is None:
        return [*lines, "round trip: exact"]
    return [*lines, f"round trip: differs from character {first['at']} on: {first['text']!r} becomes {first['back']!r}"]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"

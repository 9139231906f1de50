"""Texts from lines of a file or stdin and from arguments; only UTF-8 is accepted."""

import itertools
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from mini_tf.recipe.parsing.data_names import FORMATS, is_data_name, suffix_of
from mini_tf.system.errors import DataFault, UsageFault, suggest
from mini_tf.system.limits import format_bytes, limits
from mini_tf.system.safe_files import names_beside

_BYTE_ORDER_MARK = "\ufeff"


def read_lines(file: Path | None, option: str = "--input ") -> Iterator[str]:
    """Lines of a file, or of stdin (None or -), each as soon as it arrives, without line ends and byte order mark.

    option: what stands before the name of the file in a message.

    DataFault if the file cannot be read, or a line is not UTF-8 or longer than limits().prompt_bytes.
    """
    if file is None or file == Path("-"):
        if sys.stdin is None:
            raise DataFault("stdin is closed", hint="pipe a text into the command")
        yield from _decoded(sys.stdin.buffer, "stdin")
        return
    try:
        with file.open("rb") as lines:
            yield from _decoded(lines, str(file))
    except (OSError, ValueError) as error:
        hint = suggest(file.name, names_beside(file), shown=lambda name: shlex.quote(str(file.parent / name)))
        fault = f"{option}{file}: {getattr(error, 'strerror', None) or error}"
        raise DataFault(fault, hint=hint or None, where=[str(file)]) from error


def _decoded(lines: BinaryIO, name: str) -> Iterator[str]:
    longest = limits().prompt_bytes
    for number in itertools.count(1):
        line = lines.readline(longest + 1)
        if not line:
            return
        if len(line) > longest:
            hint = "MINITF_LIMITS=prompt_bytes=16M allows longer lines"
            raise DataFault(
                f"line {number} is longer than {format_bytes(longest)}", hint=hint, where=[f"{name}:{number}"]
            )
        try:
            text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise DataFault(
                f"line {number} is not UTF-8 (byte {error.start + 1})", where=[f"{name}:{number}"]
            ) from error
        yield text.removeprefix(_BYTE_ORDER_MARK) if number == 1 else text


def refuse_non_utf8(texts: Iterable[str], noun: str = "a text") -> None:
    """UsageFault for an argument that is not UTF-8, which Python passes on as lone surrogates. noun: its name, "a
    prompt".
    """
    for text in texts:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise UsageFault(f"{noun} is not UTF-8: {text}")


def one_source(
    texts: Collection[str] | None, file: Path | None, noun: str = "texts", settings: Collection[str] = ()
) -> None:
    """UsageFault if both arguments and --input are given, or an argument is no text but the name of a file or a
    setting. noun: the name of the arguments, "prompts". settings: names of options that belong to the command.
    """
    if texts and file is not None:
        raise UsageFault(f"both {noun} and --input {file} were given", hint="give one of them")
    if texts is not None and [*texts] == ["-"]:
        raise UsageFault("- is not a text", hint="-i - reads a text from each line of stdin")
    for text in texts or ():
        setting = re.match(r"([a-z_]+)=\S+$", text)
        if setting and setting[1] in settings:
            name, _, value = text.partition("=")
            hint = f"write it as --{name.replace('_', '-')} {shlex.quote(value)}"
            raise UsageFault(f"{text} is a setting, not a text", hint=hint)
        if len(text) < 256 and Path(text).suffix and os.path.isfile(text):
            what = "its texts" if suffix_of(text) in FORMATS else "a text from each line"
            way = f"--input {shlex.quote(text)} reads {what}"
            raise UsageFault(f"{text} is a file, not a text", hint=f"{way}; the name itself as a text: from stdin")
        if len(text) < 256 and is_data_name(text) and not any(map(str.isspace, text)):
            hint = suggest(text, names_beside(Path(text)), "the name itself as a text: from stdin", shlex.quote)
            raise UsageFault(f"{text}: no such file", hint=hint)

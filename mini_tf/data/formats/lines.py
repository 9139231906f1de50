"""The lines of a data file, as text: no line is longer than memory bears, and no byte is guessed at in silence."""

import codecs
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from mini_tf.system.errors import DataFault
from mini_tf.system.limits import format_bytes, limits
from mini_tf.system.plain_file import open_plain

Errors = Literal["strict", "replace"]
"""What becomes of bytes that are not UTF-8: the file is refused, or each is read as U+FFFD."""


def bad_bytes(path: Path, name: str) -> int:
    """How many bytes of a file are not UTF-8."""
    return sum(_replaced(line) for line in _bytes_of(path, name))


def unreadable(path: Path, name: str) -> Iterator[DataFault]:
    """Every line that `lines_of` refuses as it stands, though `errors: replace` reads on behind it."""
    byte = 0
    for number, line in enumerate(_bytes_of(path, name), 1):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            yield _not_utf8(f"{name}:{number}", byte + error.start)
        byte += len(line)


def check_first(path: Path, name: str) -> None:
    """DataFault where the first line has no end in sight; else whole gigabytes would be read before that is found out."""
    next(_bytes_of(path, name), None)


def _replaced(line: bytes) -> int:
    """A U+FFFD that stands in the text itself is not counted; its first byte always begins a character."""
    return 0 if line.isascii() else line.decode(errors=_EACH).count("\ufffd") - line.count("\ufffd".encode())


_EACH = "minitf-each-byte"
codecs.register_error(_EACH, lambda error: ("\ufffd" * (error.end - error.start), error.end))  # type: ignore[attr-defined]


def _bytes_of(path: Path, name: str) -> Iterator[bytes]:
    """Lines as they stand in the file; DataFault where one is no text, or would have to be held in memory although it is huge."""
    longest = limits().line_bytes
    with open_plain(path) as file:
        for number in itertools.count(1):
            line = file.readline(longest + 1)
            if not line:
                return
            if len(line) > longest:
                where, enough = f"{name}:{number}", -(-os.fstat(file.fileno()).st_size >> 20)
                hint = f"is this a text file? MINITF_LIMITS=line_bytes={enough}M would allow it"
                raise DataFault.located(where, f"line {number} is longer than {format_bytes(longest)}", hint=hint)
            yield line


def lines_of(path: Path, name: str, errors: Errors) -> Iterator[tuple[int, str]]:
    """Numbered lines with their line ends; the last one may have none. `name` is what messages call the file."""
    byte = 0
    for number, line in enumerate(_bytes_of(path, name), 1):
        where = f"{name}:{number}"
        if b"\0" in line:
            raise DataFault.located(where, f"byte {byte + line.index(0)} is NUL; this is not a text file")
        length = len(line)
        if line.endswith(b"\r\n"):
            line = line[:-2] + b"\n"
        try:
            text = line.decode(errors=_EACH if errors == "replace" else "strict")
        except UnicodeDecodeError as error:
            raise _not_utf8(where, byte + error.start) from None
        byte += length
        yield number, text.removeprefix("\ufeff") if number == 1 else text


def _not_utf8(where: str, byte: int) -> DataFault:
    hint = "save the file as UTF-8, or data.errors=replace reads such bytes as U+FFFD"
    return DataFault.located(where, f"byte {byte} is not UTF-8", hint=hint)

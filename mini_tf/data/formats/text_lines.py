"""Read the lines of a data file as UTF-8 text, with a limit on line length."""

import codecs
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from mini_tf.system.errors import DataFault
from mini_tf.system.limits import format_bytes, limits
from mini_tf.system.safe_files import open_plain

_BACK = 4096
"""Bytes per read where the beginning of a line is searched."""

Errors = Literal["strict", "replace"]
"""Handling of bytes that are not UTF-8: raise DataFault, or read each as U+FFFD."""


def count_bad_bytes(path: Path, name: str) -> int:
    """Number of bytes of a file that are not UTF-8."""
    return sum(_count_replaced(line) for line in _bytes_of(path, name))


def undecodable_lines(path: Path, name: str) -> Iterator[DataFault]:
    """A DataFault for each line that is not UTF-8."""
    byte = 0
    for number, line in enumerate(_bytes_of(path, name), 1):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            yield _not_utf8(f"{name}:{number}", byte + error.start)
        byte += len(line)


def check_first(path: Path, name: str) -> None:
    """Raise DataFault if the first line exceeds the limit, before gigabytes are read."""
    next(_bytes_of(path, name), None)


def _count_replaced(line: bytes) -> int:
    """Invalid bytes of a line. A U+FFFD in the text itself is not counted; its first byte always starts a character."""
    return 0 if line.isascii() else line.decode(errors=_EACH).count("\ufffd") - line.count("\ufffd".encode())


_EACH = "minitf-each-byte"
codecs.register_error(_EACH, lambda error: ("\ufffd" * (error.end - error.start), error.end))  # type: ignore[attr-defined]


def _bytes_of(path: Path, name: str) -> Iterator[bytes]:
    """The raw lines of a file; DataFault for a line that exceeds the limit."""
    longest = limits().line_bytes
    with open_plain(path) as file:
        for number in itertools.count(1):
            line = _next_line(file, longest, f"{name}:{number}", f"line {number}")
            if not line:
                return
            yield line


def _next_line(file: BinaryIO, longest: int, where: str, which: str) -> bytes:
    """The next raw line, empty at the end of the file; DataFault if it is longer than `longest`."""
    line = file.readline(longest + 1)
    if len(line) > longest:
        megabytes = -(-os.fstat(file.fileno()).st_size >> 20)
        hint = f"check that this is a text file; MINITF_LIMITS=line_bytes={megabytes}M would allow it"
        raise DataFault.located(where, f"{which} is longer than {format_bytes(longest)}", hint=hint)
    return line


def read_lines(path: Path, name: str, errors: Errors) -> Iterator[tuple[int, str]]:
    """Numbered lines with their newlines; the last may have none. `name`: the file in messages."""
    byte = 0
    for number, line in enumerate(_bytes_of(path, name), 1):
        yield number, _text_of(line, f"{name}:{number}", byte, errors)
        byte += len(line)


def read_lines_from(path: Path, name: str, offset: int, errors: Errors) -> Iterator[tuple[int, str]]:
    """`read_lines` from the beginning of the line with byte offset - 1, each with the byte where it begins."""
    longest = limits().line_bytes
    with open_plain(path) as file:
        byte = _line_start(file, offset)
        file.seek(byte)
        while line := _next_line(file, longest, where := f"{name}: byte {byte}", f"the line at byte {byte}"):
            yield byte, _text_of(line, where, byte, errors)
            byte += len(line)


def _line_start(file: BinaryIO, offset: int) -> int:
    """Where the line that contains byte offset - 1 begins."""
    end = offset - 1
    while end > 0:
        begin = max(0, end - _BACK)
        file.seek(begin)
        if (newline := file.read(end - begin).rfind(b"\n")) >= 0:
            return begin + newline + 1
        end = begin
    return 0


def _text_of(line: bytes, where: str, byte: int, errors: Errors) -> str:
    """A line that begins at `byte`, as text; DataFault if it is not text."""
    if b"\0" in line:
        raise DataFault.located(where, f"byte {byte + line.index(0)} is NUL; this is not a text file")
    if line.endswith(b"\r\n"):
        line = line[:-2] + b"\n"
    try:
        text = line.decode(errors=_EACH if errors == "replace" else "strict")
    except UnicodeDecodeError as error:
        raise _not_utf8(where, byte + error.start) from None
    return text if byte else text.removeprefix("\ufeff")


def _not_utf8(where: str, byte: int) -> DataFault:
    hint = "save the file as UTF-8, or use data.errors=replace to read such bytes as U+FFFD"
    return DataFault.located(where, f"byte {byte} is not UTF-8", hint=hint)

"""Strict JSON: no duplicate keys, no NaN, no number that overflows; short readable error messages."""

import json
from collections import Counter
from typing import Any

MAX_DIGITS = 4000
"""Maximum digits of a number; Python parses at most 4300."""


def parse(text: str) -> Any:
    """Parse a JSON text, without a byte order mark; ValueError, with a readable message, if it is invalid."""
    try:
        return _DECODER.decode(text.removeprefix("\ufeff").strip(" \t\r\n"))
    except json.JSONDecodeError as error:
        position = f" (line {error.lineno}, column {error.colno})" if error.lineno > 1 else ""
        raise ValueError(error.msg + position) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read(content: bytes) -> Any:
    """Parse the content of a JSON file; ValueError, with a readable message, if it is invalid."""
    try:
        return parse(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None


def show_json(value: Any) -> str:
    """A JSON text for files that people read: indented, with a newline at its end."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def short(name: str) -> str:
    """A name shortened to 40 characters for a message."""
    return name if len(name) <= 40 else f"{name[:40]}..."


def _to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"duplicate key {short(name)!r}")
    return row


def _parse_int(number: str) -> int:
    if len(number) > MAX_DIGITS:
        raise ValueError(f"a number has {len(number):,} digits, more than {MAX_DIGITS:,}")
    return int(number)


def _parse_float(number: str) -> float:
    if len(number) > MAX_DIGITS:
        raise ValueError(f"a number has {len(number):,} digits, more than {MAX_DIGITS:,}")
    if not abs(value := float(number)) < float("inf"):
        raise ValueError(f"{short(number)} is not a finite number")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_to_dict, parse_float=_parse_float, parse_int=_parse_int, parse_constant=_parse_float
)

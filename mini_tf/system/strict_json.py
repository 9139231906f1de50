"""JSON as its standard has it: no key twice, no NaN, no number that Python cannot hold; what is wrong is said in a few words."""

import json
from collections import Counter
from typing import Any

MOST_DIGITS = 4000
"""Of a number; Python refuses to read more than 4300."""


def parse(text: str) -> Any:
    """What a text of JSON says; ValueError, whose text is for people, where it is none."""
    try:
        return _DECODER.decode(text.strip(" \t\r\n"))
    except json.JSONDecodeError as error:
        place = f" (line {error.lineno}, column {error.colno})" if error.lineno > 1 else ""
        raise ValueError(error.msg + place) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def short(name: str) -> str:
    """A name out of a file, for a message."""
    return name if len(name) <= 40 else f"{name[:40]}..."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"key {short(name)!r} stands twice")
    return row


def _whole(number: str) -> int:
    if len(number) > MOST_DIGITS:
        raise ValueError(f"a number of {len(number):,} digits")
    return int(number)


def _finite(number: str) -> float:
    if len(number) > MOST_DIGITS:
        raise ValueError(f"a number of {len(number):,} digits")
    if not abs(value := float(number)) < float("inf"):
        raise ValueError(f"{short(number)} is not a finite number")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_int=_whole, parse_constant=_finite)

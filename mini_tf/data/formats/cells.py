"""Convert table cells to text, references, words, labels, numbers or chat messages.

Invalid cells raise DataFault with the row's location (`where`) and the column's `name`; nothing is repaired.
"""

import json
import math
import re
from typing import Any, TypeVar

from mini_tf.system.errors import DataFault
from mini_tf.system.strict_json import short

Cell = str | int | float | bool | list[Any] | dict[str, Any] | None
"""A str in csv and tsv, a list of str (one per word) in CoNLL, any JSON value in jsonl and parquet."""

TextOrList = TypeVar("TextOrList", str, list[Any])

ROLES = ("system", "user", "assistant")
"""Valid roles of chat messages."""
WHITESPACE = re.compile(r"[^\S\u00a0\u2007\u202f]")
"""What a word cannot contain: whitespace, except the spaces that do not separate words (`10 000` is one in French)."""
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def text_of(cell: Cell, where: str, name: str) -> str:
    """A text, or the non-empty texts of a list joined by spaces. May be empty."""
    if isinstance(cell, list):
        return " ".join(one for one in (_str(each, where, name) for each in cell) if one.strip())
    return _str(cell, where, name)


def texts_of(cell: Cell, where: str, name: str) -> list[str]:
    """Alternative texts (references), at least one; empty texts in a list are dropped."""
    texts = cell if isinstance(cell, list) else [cell]
    return _non_empty([one for one in (_str(each, where, name) for each in texts) if one.strip()], where, name)


def words_of(cell: Cell, where: str, name: str) -> list[str]:
    """The words of a list, or of a text split at whitespace; at least one."""
    words = [_str(each, where, name) for each in cell] if isinstance(cell, list) else _str(cell, where, name).split()
    for number, word in enumerate(_non_empty(words, where, name), 1):
        if not word.strip() or WHITESPACE.search(word):
            problem = "is empty" if not word.strip() else f"{short(word)!r} contains whitespace"
            raise DataFault.located(where, f"{short(name)!r}: word {number} {problem}")
    return words


def label_of(cell: Cell, where: str, name: str) -> str:
    """A class label: a text stripped of whitespace, or a number in JSON notation (1.0 becomes 1)."""
    if isinstance(cell, float):
        cell = _finite(cell, where, name)
        return str(int(cell)) if cell.is_integer() else json.dumps(cell)
    if isinstance(cell, bool | int):
        return json.dumps(cell)
    return _non_empty(_str(cell, where, name, "text or a number").strip(), where, name)


def labels_of(cell: Cell, where: str, name: str) -> list[str]:
    """A label for each entry of a list, or for each word of a text split at whitespace; at least one."""
    parts = cell if isinstance(cell, list) else _str(cell, where, name).split()
    return [label_of(each, where, name) for each in _non_empty(parts, where, name)]


def number_of(cell: Cell, where: str, name: str) -> float:
    """A finite number, or a text that is a decimal number such as 1, -0.5 or 1e-3."""
    if isinstance(cell, str):
        text = _non_empty(_str(cell, where, name).strip(), where, name)
        if not NUMBER.fullmatch(text):
            raise DataFault.located(where, f"{short(name)!r} must be a number, not {short(text)!r}")
        return _finite(float(text), where, name)
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        raise _wrong_type(cell, where, name, "a number")
    try:
        return _finite(float(cell), where, name)
    except OverflowError:
        return _finite(math.inf, where, name)


def messages_of(cell: Cell, where: str, name: str) -> list[tuple[str, str]]:
    """Chat messages as (role, content); at least one is from the assistant."""
    expected = 'a list of {"role": ..., "content": ...}'
    if not isinstance(cell, list):
        raise _wrong_type(cell, where, name, expected)
    messages = []
    for number, message in enumerate(cell, 1):
        if not isinstance(message, dict):
            raise _wrong_type(message, where, name, expected, number)
        for key in ("role", "content"):
            if key not in message:
                raise DataFault.located(where, f"{short(name)!r}: message {number} has no {key!r}")
        role, content = message["role"], _str(message["content"], where, f"{short(name)}: content of message {number}")
        if role not in ROLES:
            problem = f"the role of message {number} must be {', '.join(ROLES[:-1])} or {ROLES[-1]}, not {short(str(role))!r}"
            raise DataFault.located(where, f"{short(name)!r}: {problem}")
        if not content.strip():
            raise DataFault.located(where, f"{short(name)!r}: the content of message {number} is empty", hint="remove the row")
        messages.append((role, content))
    if all(role != "assistant" for role, _ in messages):
        raise DataFault.located(where, f"{short(name)!r} has no assistant message to train on")
    return messages


def _str(value: object, where: str, name: str, expected: str = "text") -> str:
    if not isinstance(value, str):
        raise _wrong_type(value, where, name, expected)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataFault.located(where, f"{short(name)!r} contains invalid Unicode (half of a surrogate pair)") from None
    return value


def _finite(number: float, where: str, name: str) -> float:
    if not math.isfinite(number):
        raise DataFault.located(where, f"{short(name)!r} is not a finite number")
    return number


def _wrong_type(value: object, where: str, name: str, expected: str, message: int | None = None) -> DataFault:
    part = f": message {message}" if message else ""
    kind = "null" if value is None else type(value).__name__
    return DataFault.located(where, f"{short(name)!r}{part} must be {expected}, not {kind}")


def _non_empty(value: TextOrList, where: str, name: str) -> TextOrList:
    if not value:
        raise DataFault.located(where, f"{short(name)!r} is empty", hint="remove the row")
    return value

"""From a cell of a table to what is asked of it: a text, references, words, labels, a number, turns of a conversation.

Nothing doubtful is repaired: it is refused with the row's place (`where`) and the column's `name`.
"""

import json
import math
import re
from typing import Any, TypeVar

from mini_tf.system.errors import DataFault
from mini_tf.system.strict_json import short

Cell = str | int | float | bool | list[Any] | dict[str, Any] | None
"""What a file holds in one place: a str of csv and tsv, a list of str (one a word) of CoNLL, anything of jsonl and parquet."""

Given = TypeVar("Given", str, list[Any])

ROLES = ("system", "user", "assistant")
"""Who may speak in a conversation."""
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def text_of(cell: Cell, where: str, name: str) -> str:
    """A text, or a list of texts joined by blanks, without the empty ones. It may be empty."""
    if isinstance(cell, list):
        return " ".join(one for one in (_str(each, where, name) for each in cell) if one.strip())
    return _str(cell, where, name)


def texts_of(cell: Cell, where: str, name: str) -> list[str]:
    """Alternative texts, at least one of them; empty ones of a list are left out."""
    given = cell if isinstance(cell, list) else [cell]
    return _given([one for one in (_str(each, where, name) for each in given) if one.strip()], where, name)


def words_of(cell: Cell, where: str, name: str) -> list[str]:
    """The words of a list, or of a text between its white space; at least one."""
    words = [_str(each, where, name) for each in cell] if isinstance(cell, list) else _str(cell, where, name).split()
    for number, word in enumerate(_given(words, where, name), 1):
        if word.split() != [word]:
            told = "is empty" if not word.strip() else f"{short(word)!r} holds white space"
            raise DataFault.located(where, f"{short(name)!r}: word {number} {told}")
    return words


def label_of(cell: Cell, where: str, name: str) -> str:
    """The name of a class: a text without the white space around it, or a number as JSON has it, a whole one without its point."""
    if isinstance(cell, float):
        cell = _finite(cell, where, name)
        return str(int(cell)) if cell.is_integer() else json.dumps(cell)
    if isinstance(cell, bool | int):
        return json.dumps(cell)
    return _given(_str(cell, where, name, "text or a number").strip(), where, name)


def labels_of(cell: Cell, where: str, name: str) -> list[str]:
    """A label for each entry of a list, or for each part of a text between its white space; at least one."""
    parts = cell if isinstance(cell, list) else _str(cell, where, name).split()
    return [label_of(each, where, name) for each in _given(parts, where, name)]


def number_of(cell: Cell, where: str, name: str) -> float:
    """A finite number, or a text that is one as JSON and most programs write it."""
    if isinstance(cell, str):
        text = _given(_str(cell, where, name).strip(), where, name)
        if not NUMBER.fullmatch(text):
            raise DataFault.located(where, f"{short(name)!r} must be a number, not {short(text)!r}")
        return _finite(float(text), where, name)
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        raise _other(cell, where, name, "a number")
    try:
        return _finite(float(cell), where, name)
    except OverflowError:
        return _finite(math.inf, where, name)


def turns_of(cell: Cell, where: str, name: str) -> list[tuple[str, str]]:
    """Who says what, one after another; at least one turn is the assistant's."""
    form = 'a list of {"role": ..., "content": ...}'
    if not isinstance(cell, list):
        raise _other(cell, where, name, form)
    turns = []
    for number, turn in enumerate(cell, 1):
        if not isinstance(turn, dict):
            raise _other(turn, where, name, form, number)
        for key in ("role", "content"):
            if key not in turn:
                raise DataFault.located(where, f"{short(name)!r}: turn {number} has no {key!r}")
        role, said = turn["role"], _str(turn["content"], where, f"{short(name)}: content of turn {number}")
        if role not in ROLES:
            told = f"the role of turn {number} must be {', '.join(ROLES[:-1])} or {ROLES[-1]}, not {short(str(role))!r}"
            raise DataFault.located(where, f"{short(name)!r}: {told}")
        if not said.strip():
            raise DataFault.located(where, f"{short(name)!r}: the content of turn {number} is empty", hint="take the row out")
        turns.append((role, said))
    if all(role != "assistant" for role, _ in turns):
        raise DataFault.located(where, f"{short(name)!r} has no turn of the assistant: there is nothing to learn")
    return turns


def _str(value: object, where: str, name: str, wanted: str = "text") -> str:
    if not isinstance(value, str):
        raise _other(value, where, name, wanted)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataFault.located(where, f"{short(name)!r} holds invalid Unicode (half of a surrogate pair)") from None
    return value


def _finite(number: float, where: str, name: str) -> float:
    if not math.isfinite(number):
        raise DataFault.located(where, f"{short(name)!r} is not a finite number")
    return number


def _other(value: object, where: str, name: str, wanted: str, turn: int | None = None) -> DataFault:
    which = f": turn {turn}" if turn else ""
    kind = "null" if value is None else type(value).__name__
    return DataFault.located(where, f"{short(name)!r}{which} must be {wanted}, not {kind}")


def _given(value: Given, where: str, name: str) -> Given:
    """A text, or a list, that is not empty."""
    if not value:
        raise DataFault.located(where, f"{short(name)!r} is empty", hint="remove the row")
    return value

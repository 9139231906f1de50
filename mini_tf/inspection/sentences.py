"""Sentences that hold a word: where it stands in them, and files that say in which sense it is meant."""

import json
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from mini_tf.system.errors import DataFault

_WITHOUT_BLANKS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
"""Scripts, by the names of their characters, that put no blank between words: there every character counts as a word."""


class Sentence(NamedTuple):
    """`where` names it in a message: "text 2", or a file and line."""

    text: str
    where: str
    sense: str | None = None


def read(lines: Iterable[str], name: str, word: str) -> Iterator[Sentence]:
    """The sentences in the lines of the file `name`; in a .jsonl file records of another word are passed over, empty lines everywhere."""
    for number, line in enumerate(lines, 1):
        where = f"{name}:{number}"
        if not line.strip():
            continue
        if not name.lower().endswith(".jsonl"):
            yield Sentence(line, where)
        elif (record := _record(line, where)).get("word", word) == word:
            yield Sentence(record["text"], where, record.get("sense"))


def _record(line: str, where: str) -> dict[str, str]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataFault(f"not a line of JSON: {error}", where=[where]) from error
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise DataFault('a record must have a "text"', where=[where])
    fields = {field: record[field] for field in ("text", "word", "sense") if record.get(field) is not None}
    for field, value in fields.items():
        if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
            raise DataFault(f'"{field}" must be a text', where=[where])
    return fields


def find_word(text: str, word: str) -> list[tuple[int, int]]:
    """The characters [first, last) of each occurrence of the word as a whole word, case as given."""
    found = []
    first = text.find(word)
    while first >= 0:
        last = first + len(word)
        if not _joined(text, first) and not _joined(text, last):
            found.append((first, last))
        first = text.find(word, first + 1)
    return found


def word_spans(text: str) -> list[tuple[int, int]]:
    """The words of a text as [first, last): runs of letters, marks, digits and _."""
    borders = [i for i in range(len(text) + 1) if not _joined(text, i)]
    return [(first, last) for first, last in pairwise(borders) if _is_letter(text[first])]


def _joined(text: str, at: int) -> bool:
    """Whether the characters before and after the border `at` belong to one word."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if unicodedata.category(after)[0] == "M":  # a mark belongs to the letter it stands on
        return _is_letter(before)
    return _is_letter(before) and _is_letter(after) and not (_stands_alone(before) or _stands_alone(after))


def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN" or character == "_"


def _stands_alone(character: str) -> bool:
    return character > "\u0dff" and unicodedata.name(character, "").startswith(_WITHOUT_BLANKS)

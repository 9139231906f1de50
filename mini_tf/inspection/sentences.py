"""Sentences with a word: reading files with senses, and finding the word."""

import json
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from mini_tf.system.errors import DataFault

_UNSPACED_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
"""Scripts without spaces between words, by Unicode name; each character counts as a word."""


class Sentence(NamedTuple):
    """where: its name in messages, "text 2" or a file and line."""

    text: str
    where: str
    sense: str | None = None


def read(lines: Iterable[str], name: str, word: str) -> Iterator[Sentence]:
    """Read sentences from lines of the file `name`; skips empty lines, and records of other words in .jsonl files."""
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
        raise DataFault(f"not valid JSON: {error}", where=[where]) from error
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise DataFault('a record must have a "text"', where=[where])
    fields = {field: record[field] for field in ("text", "word", "sense") if record.get(field) is not None}
    for field, value in fields.items():
        if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
            raise DataFault(f'"{field}" must be a valid string', where=[where])
    return fields


def find_word(text: str, word: str) -> list[tuple[int, int]]:
    """Character spans [first, last) of the word as a whole word, case-sensitive."""
    found = []
    first = text.find(word)
    while first >= 0:
        last = first + len(word)
        if not _within_word(text, first) and not _within_word(text, last):
            found.append((first, last))
        first = text.find(word, first + 1)
    return found


def word_spans(text: str) -> list[tuple[int, int]]:
    """Spans [first, last) of the words of a text: runs of letters, combining marks, digits and _."""
    boundaries = [i for i in range(len(text) + 1) if not _within_word(text, i)]
    return [(first, last) for first, last in pairwise(boundaries) if _is_letter(text[first])]


def _within_word(text: str, at: int) -> bool:
    """Whether the characters before and after the offset `at` belong to one word."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if unicodedata.category(after)[0] == "M":  # a combining mark belongs to its base letter
        return _is_letter(before)
    return _is_letter(before) and _is_letter(after) and not (_is_unspaced(before) or _is_unspaced(after))


def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN" or character == "_"


def _is_unspaced(character: str) -> bool:
    return character > "\u0dff" and unicodedata.name(character, "").startswith(_UNSPACED_SCRIPTS)

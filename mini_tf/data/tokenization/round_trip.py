"""What a tokenizer loses of a text: found by trying what usually is lost, and by reading its normalizer."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

CHARACTERS = [
    *"AZé",
    "e\u0301",
    *"ÄﬁÅＡ①漢한ёß",
    "``",
    *"▁🙂\u200d\ufffd\0\x01\ue000",
    *map(chr, [*range(0x21, 0x7F), *range(0xA1, 0x180), 0x10FFFD]),
]
SPACES = ("{0}\t{0}", "{0}  {0}", "{0}.{0}", " {0}", "{0} ", "{0}\n{0}", "{0}\r\n{0}", "{0} .", " ")
LONG = 1000
Back = Callable[[str], str | None]
"""A text after encode and decode; None where a part of it is unknown."""


def losses(back: Back, content: dict[str, Any], pieces: Sequence[str]) -> list[str]:
    """A sentence for each kind of loss; `content` is the tokenizer.json, `pieces` are its tokens as text."""
    found = [*_unknown(back, content), *_changed(back), *_spaces(back, pieces)]
    names = sorted(set(_changing(content["normalizer"])))
    if names and not found:
        found.append(f"its normalizer may change text: {', '.join(names)}")
    return found


def _unknown(back: Back, content: dict[str, Any]) -> Iterator[str]:
    if any(back(text) is None for text in CHARACTERS):
        what = "a word with a character" if content["model"].get("type") == "WordPiece" else "a character"
        yield f"{what} that is not in the vocabulary becomes unknown, and comes back as nothing"


def _changed(back: Back) -> Iterator[str]:
    examples: dict[str, str] = {}
    for text in CHARACTERS:
        after = back(text)
        if after is None or after.strip() == text:
            continue
        if not after:
            kind = "some characters are dropped"
        elif after.strip() == text.lower():
            kind = "upper case becomes lower case"
        else:
            kind = "some characters are replaced"
        examples.setdefault(kind, f"{kind}: {text!r} comes back as {after!r}")
    yield from examples.values()


def _spaces(back: Back, pieces: Sequence[str]) -> Iterator[str]:
    words = sorted(filter(str.isalnum, map(str.strip, pieces)), key=lambda word: not word.isalpha())
    word = next((word for word in words if (back(word) or "").strip() == word), None)
    if word is None:
        yield "no word of its vocabulary comes back"
        return
    forms = [form.format(word) for form in SPACES]
    pairs = [(form, after) for form in forms if (after := back(form)) not in (form, None)]
    if pairs:
        yield "white space is not kept: " + ", ".join(f"{form!r} comes back as {after!r}" for form, after in pairs[:3])
    long = word * LONG
    after = back(long)
    if after is None:
        yield "a very long word becomes unknown"
    elif after.strip() != long:
        yield "a very long word comes back with blanks in it"


def _changing(part: Any) -> Iterator[str]:
    """The normalizers that do more than to write blanks in another way; if these lose something, trying shows it."""
    kind = part["type"] if isinstance(part, dict) else "Sequence"
    if kind == "Sequence":
        for inner in (part or {}).get("normalizers", ()):
            yield from _changing(inner)
    elif kind != "Prepend" and not (kind == "Replace" and part["pattern"] == {"String": " "}):
        yield kind

"""Find out which text a tokenizer changes in decode(encode(text)), by trying samples and by reading its normalizer."""

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
LONG_WORD = 1000
RoundTrip = Callable[[str], str | None]
"""decode(encode(text)); None if the ids contain the unknown token."""


def round_trip_losses(round_trip: RoundTrip, content: dict[str, Any], pieces: Sequence[str]) -> list[str]:
    """A sentence for each kind of loss; content: the tokenizer.json; pieces: its tokens as text."""
    losses = [*_unknown(round_trip, content), *_changed(round_trip), *_spaces(round_trip, pieces)]
    names = sorted(set(_text_normalizers(content["normalizer"])))
    if names and not losses:
        losses.append(f"its normalizer may change text: {', '.join(names)}")
    return losses


def _unknown(round_trip: RoundTrip, content: dict[str, Any]) -> Iterator[str]:
    if any(round_trip(text) is None for text in CHARACTERS):
        unit = "a word with a character" if content["model"].get("type") == "WordPiece" else "a character"
        yield f"{unit} that is not in the vocabulary becomes the unknown token, which decodes to nothing"


def _changed(round_trip: RoundTrip) -> Iterator[str]:
    examples: dict[str, str] = {}
    for text in CHARACTERS:
        after = round_trip(text)
        if after is None or after.strip() == text:
            continue
        if not after:
            kind = "some characters are dropped"
        elif after.strip() == text.lower():
            kind = "upper case becomes lower case"
        else:
            kind = "some characters are replaced"
        examples.setdefault(kind, f"{kind}: {text!r} decodes to {after!r}")
    yield from examples.values()


def _spaces(round_trip: RoundTrip, pieces: Sequence[str]) -> Iterator[str]:
    words = sorted(filter(str.isalnum, map(str.strip, pieces)), key=lambda word: not word.isalpha())
    word = next((word for word in words if (round_trip(word) or "").strip() == word), None)
    if word is None:
        yield "no word of its vocabulary is preserved"
        return
    texts = [text.format(word) for text in SPACES]
    pairs = [(text, after) for text in texts if (after := round_trip(text)) not in (text, None)]
    if pairs:
        yield "whitespace is not preserved: " + ", ".join(f"{text!r} decodes to {after!r}" for text, after in pairs[:3])
    long = word * LONG_WORD
    after = round_trip(long)
    if after is None:
        yield "a very long word becomes the unknown token"
    elif after.strip() != long:
        yield "a very long word decodes with spaces in it"


def _text_normalizers(part: Any) -> Iterator[str]:
    """Types of the normalizers, except those that only rewrite spaces, whose losses the samples show."""
    kind = part["type"] if isinstance(part, dict) else "Sequence"
    if kind == "Sequence":
        for inner in (part or {}).get("normalizers", ()):
            yield from _text_normalizers(inner)
    elif kind != "Prepend" and not (kind == "Replace" and part["pattern"] == {"String": " "}):
        yield kind

"""The text of each token of a tokenizer.json: byte-level, with ▁ for a space, with ## inside a word, or plain.

Also which text a tokenizer changes in decode(encode(text)), by trying samples and by reading its normalizer.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Regex, models, pre_tokenizers

from mini_tf.recipe.kinds import listing, settings_of

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {chr(0x100 + n): byte for n, byte in enumerate(_OTHERS)}
"""The 256 characters for bytes in byte-level tokenizers (GPT-2): printable Latin-1, the rest from U+0100 on."""
_HEXADECIMAL = re.compile("<0x([0-9A-Fa-f]{2})>")
CHARACTER_OF = {byte: character for character, byte in BYTE_OF.items()}
N_CODE_POINTS = 0x110000
_BARE = json.loads(models.BPE().__getstate__())
"""A BPE model without merges and vocabulary."""
_SPLIT_CHARACTERS = json.loads(pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated").__getstate__())
_SPLIT_BYTES = json.loads(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).__getstate__())


def lookup_table(content: dict[str, Any], unk: int | None) -> Callable[[str], np.ndarray] | None:
    """The ids of a text by a table look-up if every token is one character or byte; else None.

    content: the tokenizer.json; unk: its unknown token.
    """
    model, split = content["model"], content["pre_tokenizer"]
    if content["normalizer"] or not all(token["special"] for token in content["added_tokens"]):
        return None
    vocabulary = model.get("vocab")
    if split == _SPLIT_CHARACTERS and model["type"] == "WordLevel" and unk is not None:
        by_point = np.full(N_CODE_POINTS, unk, np.int32)
        known = {ord(token): id for token, id in vocabulary.items() if len(token) == 1}
        by_point[list(known)] = list(known.values())
        return lambda text: by_point[np.frombuffer(text.encode("utf-32-le"), "<u4")]
    if split == _SPLIT_BYTES and model == _BARE | {"vocab": vocabulary} and BYTE_OF.keys() <= vocabulary.keys():
        by_byte = np.zeros(256, np.int32)
        for token, byte in BYTE_OF.items():
            by_byte[byte] = vocabulary[token]
        return lambda text: by_byte[np.frombuffer(text.encode(), np.uint8)]
    return None


class PieceTable(NamedTuple):
    """The text of every id. special: ids of special tokens. bytes: the bytes of each id in a byte-level tokenizer, else
    empty.

    hexadecimal: ids of byte tokens such as <0x0A>. pieces: readable text by id; invalid UTF-8 bytes as \\xNN, ## is
    kept. inside_characters: ids whose first byte continues a character of UTF-8.
    """

    special: frozenset[int]
    bytes: dict[int, bytes]
    hexadecimal: frozenset[int]
    pieces: list[str]
    inside_characters: frozenset[int]


def piece_table_of(content: dict[str, Any]) -> PieceTable:
    """The piece table of a tokenizer.json."""
    special = frozenset(token["id"] for token in content["added_tokens"] if token["special"])
    added = {token["id"]: token["content"] for token in content["added_tokens"]}
    vocabulary = content["model"]["vocab"]
    rows = vocabulary.items() if isinstance(vocabulary, dict) else ((row[0], id) for id, row in enumerate(vocabulary))
    tokens = {id: token for token, id in rows} | added
    decoder = json.dumps(content["decoder"] or {}, ensure_ascii=False)
    as_bytes, hexadecimal, readable = dict[int, bytes](), frozenset[int](), tokens
    if '"ByteLevel"' in decoder:
        as_bytes = {id: _as_bytes(token) for id, token in tokens.items()}
        readable = {id: text.decode(errors="backslashreplace") for id, text in as_bytes.items()}
    elif "▁" in decoder:
        as_text = {id: _byte_of(token).decode(errors="backslashreplace") for id, token in tokens.items()}
        readable = {id: (as_text[id] or token).replace("▁", " ") for id, token in tokens.items()}
    if '"ByteFallback"' in decoder and not as_bytes:
        hexadecimal = frozenset(id for id, token in tokens.items() if _HEXADECIMAL.fullmatch(token))
    readable = readable | added
    first_bytes = as_bytes | {id: _byte_of(tokens[id]) for id in hexadecimal}
    inside = {id for id, data in first_bytes.items() if b"\x80" <= data[:1] < b"\xc0"}
    pieces = [readable.get(id, f"[{id}]") for id in range(1 + max(tokens))]
    return PieceTable(special, as_bytes, hexadecimal, pieces, frozenset(inside - special))


def _byte_of(token: str) -> bytes:
    """The byte that SentencePiece writes as <0x0A>; empty for another token."""
    match = _HEXADECIMAL.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else b""


def _as_bytes(token: str) -> bytes:
    """The bytes of a byte-level token; a token with other characters is UTF-8, as in the library."""
    try:
        return bytes(map(BYTE_OF.__getitem__, token))
    except KeyError:
        return token.encode()


def kind_of(content: dict[str, Any]) -> str:
    """The recipe's `tokenizer.kind` of a tokenizer.json; `words` if it is none of them."""
    kinds: Any = (settings_of("data.tokenizers", word)() for word in listing("data.tokenizers"))
    return next((settings.kind for settings in kinds if settings.matches(content)), "words")


def word_edges(table: PieceTable, is_wordpiece: bool) -> tuple[np.ndarray, np.ndarray]:
    """Two bool arrays by id: whether the token, and whether the next one, starts a word. Whitespace separates words."""
    starts, ends = np.zeros((2, len(table.pieces)), bool)
    for id, piece in enumerate(table.pieces):
        if is_wordpiece:
            starts[id] = not piece.startswith("##")
        elif id in table.special:
            starts[id] = ends[id] = True
        else:
            starts[id] = piece[:1].isspace() and not piece.isspace()
            ends[id] = piece[-1:].isspace()
    return starts, ends


def texts_of(table: PieceTable, is_wordpiece: bool) -> tuple[str, ...]:
    """The text of each id, with a space where it begins a word; of a special token a space."""

    def text(id: int, piece: str) -> str:
        if id in table.special:
            return " "
        return piece if not is_wordpiece else piece[2:] if piece.startswith("##") else f" {piece}"

    return tuple(text(id, piece) for id, piece in enumerate(table.pieces))


_CLOSING = "\"'\u2019\u201d)]}"
"""Characters that may follow the end of a sentence and belong to it."""


def sentence_edges(table: PieceTable) -> tuple[np.ndarray, np.ndarray]:
    """Two bool arrays by id: whether the token ends a sentence; whether it is only whitespace and closing quotes."""
    ends, transparent = np.zeros((2, len(table.pieces)), bool)
    for id, piece in enumerate(table.pieces):
        if id not in table.special:
            text = piece.rstrip().rstrip(_CLOSING)
            ends[id], transparent[id] = text[-1:] in tuple(".!?\u3002\uff01\uff1f"), not text.strip()
    return ends, transparent


CHARACTERS = [*"AZé", "e\u0301", *"ÄﬁÅＡ①漢한ёß", "``", *"▁🙂\u200d\ufffd\0\x01\ue000"]
CHARACTERS += map(chr, [*range(0x21, 0x7F), *range(0xA1, 0x180), 0x10FFFD])
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

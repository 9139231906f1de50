"""How the tokens of a tokenizer.json are read as text: byte-level, with ▁ for a blank, with ## inside a word, or as they are."""

import json
import re
from typing import Any, NamedTuple

import numpy as np

from mini_tf.recipe.kind_settings import TokenizerSettings
from mini_tf.recipe.kinds import listing, settings_of


def _byte_alphabet() -> dict[str, int]:
    """The 256 characters in which byte-level tokenizers write bytes (GPT-2): printable Latin-1 as it is, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + n): b for n, b in enumerate(others)}


BYTE_OF = _byte_alphabet()
_HEXADECIMAL = re.compile("<0x([0-9A-Fa-f]{2})>")
CHARACTER_OF = {byte: character for character, byte in BYTE_OF.items()}


class Spelling(NamedTuple):
    """How ids become text: which are special; the bytes of each, if tokens are bytes, else nothing; which are a byte in hexadecimal.

    pieces: each token as people read it, by id; bytes that are no character as \\xNN, ## as it is.
    """

    special: frozenset[int]
    bytes: dict[int, bytes]
    hexadecimal: frozenset[int]
    pieces: list[str]


def spelling_of(content: dict[str, Any]) -> Spelling:
    """The spelling of a tokenizer.json."""
    special = frozenset(token["id"] for token in content["added_tokens"] if token["special"])
    added = {token["id"]: token["content"] for token in content["added_tokens"]}
    vocabulary = content["model"]["vocab"]
    pairs = vocabulary.items() if isinstance(vocabulary, dict) else ((token, id) for id, (token, _) in enumerate(vocabulary))
    tokens = {id: token for token, id in pairs} | added
    decoder = json.dumps(content["decoder"] or {}, ensure_ascii=False)
    as_bytes, hexadecimal, readable = dict[int, bytes](), frozenset[int](), tokens
    if '"ByteLevel"' in decoder:
        as_bytes = {id: _as_bytes(token) for id, token in tokens.items()}
        readable = {id: text.decode(errors="backslashreplace") for id, text in as_bytes.items()}
    elif "▁" in decoder:
        readable = {id: _from_hexadecimal(token).replace("▁", " ") for id, token in tokens.items()}
    if '"ByteFallback"' in decoder and not as_bytes:
        hexadecimal = frozenset(id for id, token in tokens.items() if _HEXADECIMAL.fullmatch(token))
    readable = readable | added
    return Spelling(special, as_bytes, hexadecimal, [readable.get(id, f"[{id}]") for id in range(1 + max(tokens))])


def _from_hexadecimal(token: str) -> str:
    """sentencepiece writes a byte as <0x0A>."""
    found = _HEXADECIMAL.fullmatch(token)
    return bytes([int(found[1], 16)]).decode("utf-8", errors="backslashreplace") if found else token


def _as_bytes(token: str) -> bytes:
    """A token in the alphabet of byte-level tokenizers; one that has other characters stands for itself, as the library has it."""
    if all(character in BYTE_OF for character in token):
        return bytes(BYTE_OF[character] for character in token)
    return token.encode()


def kind_of(content: dict[str, Any]) -> str:
    """The word of a recipe for this tokenizer.json; `words` for one that has none."""
    ours = (settings_of("data.tokenizers", word)() for word in listing("data.tokenizers"))
    return next((one.kind for one in ours if isinstance(one, TokenizerSettings) and one.made(content)), "words")


def edges(spelling: Spelling, glued: bool) -> tuple[np.ndarray, np.ndarray]:
    """By id: whether a token itself begins a word, and whether the next one does, by white space alone; glued: as in WordPiece."""
    begins, ends = np.zeros((2, len(spelling.pieces)), bool)
    for id, piece in enumerate(spelling.pieces):
        if glued:
            begins[id] = not piece.startswith("##")
        elif id in spelling.special:
            begins[id] = ends[id] = True
        else:
            begins[id] = piece[:1].isspace() and not piece.isspace()
            ends[id] = piece[-1:].isspace()
    return begins, ends

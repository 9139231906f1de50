"""Text from ids that come one by one: no character is split, and what was given out never changes.

All pieces together are what `Tokenizer.decode` makes of all ids. A token costs the same wherever it stands.
"""

import codecs
import json
import re
from collections.abc import Sequence
from functools import lru_cache

from mini_tf.text.pieces import BYTE_OF
from mini_tf.text.tokenizer import Tokenizer


class TextStream:
    """The text of ids that stand `after` others, since some tokenizers write the first token of a text in another way."""

    def __init__(self, tokenizer: Tokenizer, after: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._special, self._bytes, self._hexadecimal = _content(tokenizer)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        plain = [id for id in after if id not in self._special]
        first = next((i for i in reversed(range(len(plain))) if plain[i] not in self._hexadecimal), 0)
        self._last, self._waiting = plain[first:], list[int]()

    def push(self, id: int) -> str:
        """The text that is certain now."""
        if id in self._special:
            return ""
        if self._bytes:
            return self._utf8.decode(self._bytes.get(id, b""))
        self._waiting.append(id)
        # Of bytes in a row none is certain before the last: one that fits nowhere makes all of them unreadable.
        return "" if id in self._hexadecimal else self._release()

    def end(self) -> str:
        """The rest; bytes that did not become a character are U+FFFD."""
        return self._utf8.decode(b"", final=True) if self._bytes else self._release()

    def _release(self) -> str:
        """The text of the waiting tokens: what they add to the token before them."""
        before = self._tokenizer.decode(self._last)
        text = self._tokenizer.decode(self._last + self._waiting)[len(before) :]
        self._last, self._waiting = self._waiting[-1:] or self._last, []
        return text


@lru_cache(maxsize=4)
def _content(tokenizer: Tokenizer) -> tuple[frozenset[int], dict[int, bytes], frozenset[int]]:
    """Special ids; the bytes of each id if tokens are bytes, else nothing; ids that are written as a byte in hexadecimal."""
    content = json.loads(tokenizer.to_json())
    special = frozenset(token["id"] for token in content["added_tokens"] if token["special"])
    vocabulary = content["model"]["vocab"]
    pairs = vocabulary.items() if isinstance(vocabulary, dict) else ((token, id) for id, (token, _) in enumerate(vocabulary))
    tokens = {id: token for token, id in pairs} | {token["id"]: token["content"] for token in content["added_tokens"]}
    decoder = json.dumps(content["decoder"] or {})
    if '"ByteLevel"' in decoder:
        return special, {id: _as_bytes(token) for id, token in tokens.items()}, frozenset()
    hexadecimal = (id for id, token in tokens.items() if '"ByteFallback"' in decoder and re.fullmatch("<0x[0-9A-Fa-f]{2}>", token))
    return special, {}, frozenset(hexadecimal)


def _as_bytes(token: str) -> bytes:
    """A token in the alphabet of byte-level tokenizers; one that has other characters stands for itself, as the library has it."""
    if all(character in BYTE_OF for character in token):
        return bytes(BYTE_OF[character] for character in token)
    return token.encode()

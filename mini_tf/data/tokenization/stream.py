"""Decode ids incrementally: no character is split, and text that was returned never changes.

The pieces joined equal `Tokenizer.decode` of all ids. The cost per token is constant.
"""

import codecs
from collections.abc import Sequence

from mini_tf.data.tokenization.tokenizer import Tokenizer

MOST_KNOWN = 2**16
"""Decoded tokens after a token that are remembered: decoding them again takes tens of microseconds."""


class TextStream:
    """Incremental decoder. after: the preceding ids; some tokenizers decode the first token of a text differently."""

    def __init__(self, tokenizer: Tokenizer, after: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        table = tokenizer.piece_table
        self._special, self._bytes, self._hexadecimal = table.special, table.bytes, table.hexadecimal
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        plain = [id for id in after if id not in self._special]
        first = next((i for i in reversed(range(len(plain))) if plain[i] not in self._hexadecimal), 0)
        self._last, self._pending = plain[first:], list[int]()

    def push(self, id: int) -> str:
        """Add an id; the text that is final now."""
        if id in self._special:
            return ""
        if self._bytes:
            return self._utf8.decode(self._bytes.get(id, b""))
        self._pending.append(id)
        # A run of byte tokens is final only at its end: one invalid byte makes all of them undecodable.
        return "" if id in self._hexadecimal else self._release()

    def end(self) -> str:
        """The remaining text; incomplete characters become U+FFFD."""
        return self._utf8.decode(b"", final=True) if self._bytes else self._release()

    def _release(self) -> str:
        """The text that the pending tokens add to the token before them."""
        key, known = (*self._last, -1, *self._pending), self._tokenizer.added_texts
        text = known.get(key)
        if text is None:
            before = self._tokenizer.decode(self._last)
            text = self._tokenizer.decode(self._last + self._pending)[len(before) :]
            if len(known) < MOST_KNOWN:
                known[key] = text
        self._last, self._pending = self._pending[-1:] or self._last, []
        return text

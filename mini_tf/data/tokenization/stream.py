"""Text from ids that come one by one: no character is split, and what was given out never changes.

All pieces together are what `Tokenizer.decode` makes of all ids. A token costs the same wherever it stands.
"""

import codecs
from collections.abc import Sequence

from mini_tf.data.tokenization.tokenizer import Tokenizer


class TextStream:
    """The text of ids that stand `after` others, since some tokenizers write the first token of a text in another way."""

    def __init__(self, tokenizer: Tokenizer, after: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._special, self._bytes, self._hexadecimal, _ = tokenizer.spelling
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

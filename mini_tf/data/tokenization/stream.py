"""Streamed text: ids are decoded incrementally, and a text ends before its first stop string.

No character is split, and text that was returned never changes. The pieces joined equal `Tokenizer.decode` of all ids.
The cost per token is constant.
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

    def push(self, *ids: int) -> str:
        """Add ids; the text that is final now, however they are split into calls."""
        plain = [id for id in ids if id not in self._special]
        if self._bytes:
            return self._utf8.decode(b"".join([self._bytes.get(id, b"") for id in plain]))
        text = ""
        for id in plain:
            self._pending.append(id)
            # A run of byte tokens is final only at its end: one invalid byte makes all of them undecodable.
            if id not in self._hexadecimal:
                text += self._release()
        return text

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


class StopStringFilter:
    """Passes on streamed text up to the first complete stop string; if several end at one position, the longest counts.

    The result does not depend on how the text is split into pieces. A possible beginning of a stop string is held back.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        if "" in stops:
            raise ValueError("an empty stop string would end every text at once")
        self._stops = tuple(stops)
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that is final after `text` was appended; "" once `stopped`."""
        if self.stopped or not self._stops:
            return "" if self.stopped else text
        text = self._held + text
        stops = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if stops:
            self.stopped, self._held = True, ""
            return text[: min(stops)[1]]
        ends = range(min(len(text), self._longest - 1), 0, -1)
        n_held = next((n for n in ends if any(stop.startswith(text[-n:]) for stop in self._stops)), 0)
        self._held = text[len(text) - n_held :]
        return text[: len(text) - n_held]

    def end(self) -> str:
        """The text that was held back, at the end of the stream."""
        held, self._held = self._held, ""
        return held

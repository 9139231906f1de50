"""Prefixes of a corpus, shortened for display."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from rich.cells import cell_len

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.drawing.labels import label, visible_characters

SHOWN = 24
"""Tokens before the trigger that are kept."""
WIDTH = 48
"""Cells of an excerpt in a terminal."""


class Excerpt(NamedTuple):
    """The end of a prefix: `before` is the text before its last token, `trigger` that token, `next` the one after it.

    length: tokens of the whole prefix. A separator that opens it is left out.
    """

    before: str
    trigger: str
    next: str | None
    length: int

    def shown(self, width: int = WIDTH) -> str:
        """The trigger in brackets, and as much of the text before it as fits."""
        trigger = f"[{label(self.trigger, width // 2)}]"
        room, kept = width - cell_len(trigger), list[str]()
        characters = visible_characters(self.before)
        for character in reversed(characters):
            if (room := room - cell_len(character)) < 1:  # of the ellipsis
                break
            kept.append(character)
        cut = len(kept) < len(characters) or self.length - 1 > SHOWN
        return f"{'…' * cut}{''.join(reversed(kept))}{trigger}"


def excerpt(tokenizer: Tokenizer, ids: Sequence[int], following: int | None) -> Excerpt:
    """The excerpt of a prefix `ids` and the token after it, if there is one."""
    start = int(len(ids) > 1 and ids[0] == tokenizer.vocabulary.separator)
    before = ""
    for is_special, group in groupby(ids[start:-1][-SHOWN:], key=lambda id: id in tokenizer.vocabulary.special_ids):
        part = list(group)
        before += "".join(tokenizer.pieces(part)) if is_special else tokenizer.decode(part)
    [trigger] = tokenizer.pieces(ids[-1:])
    return Excerpt(before, trigger, None if following is None else tokenizer.pieces([following])[0], len(ids) - start)

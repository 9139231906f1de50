"""A text as tokens: ids, how they read, their bytes, and the characters they stand for. Needs no torch."""

from itertools import accumulate
from typing import NamedTuple

from mini_tf.data.tokenization.tokenizer import Tokenizer


class Token(NamedTuple):
    """span: the characters of the text that it stands for, as [first, last); tokens of a part of a character share its span.

    bytes: its own share of the text; where the tokenizer rewrote the text (lower case, an unknown token) those of its span.
    """

    id: int
    piece: str
    bytes: bytes
    span: tuple[int, int]
    unknown: bool


def tokens_of(tokenizer: Tokenizer, text: str) -> list[Token]:
    """The text's tokens, without any special token; what looks like one in the text is text."""
    ids, spans = tokenizer.spans(text)
    vocabulary, pieces = tokenizer.vocabulary, tokenizer.pieces(ids)
    whole, found = text.encode(), []
    starts = [0, *accumulate(len(character.encode()) for character in text)]  # the byte at which each character begins
    at = 0
    for id, piece, (first, last) in zip(map(int, ids), pieces, spans, strict=True):
        length = None if id in vocabulary.special_ids else _prefix(whole[at : at + len(piece.encode())], piece)
        own = whole[starts[first] : starts[last]] if length is None else whole[at : at + length]
        at = starts[last] if length is None else at + length
        found.append(Token(id, piece, own, (int(first), int(last)), id == vocabulary.unk))
    return found


def _prefix(data: bytes, piece: str) -> int | None:
    """The number of bytes that read as `piece`, a byte that is no character as \\xNN; None where they do not begin so."""
    return next((n for n in range(1, len(data) + 1) if data[:n].decode("utf-8", errors="backslashreplace") == piece), None)

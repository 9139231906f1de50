"""A text as tokens: ids, how they read, their bytes, and the characters they stand for. Needs no torch."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.drawing.labels import label
from mini_tf.drawing.terminal import sentence, table
from mini_tf.inspection import Picture, View


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


def view(tokenizer: Tokenizer, texts: Sequence[str]) -> View:
    """A table for each text, and how many tokens, characters and bytes it has."""
    found = [(text, tokens_of(tokenizer, text)) for text in texts]
    pictures: list[Picture] = []
    for text, tokens in found:
        pictures += [*([partial(sentence, "")] if pictures else []), *_pictures(text, tokens)]
    records = [{"text": t, "n_tokens": len(tokens), "n_bytes": len(t.encode()), "tokens": [*map(_record, tokens)]} for t, tokens in found]
    return View({"texts": records, "notes": tokenizer.notes}, pictures)


def _record(token: Token) -> dict[str, Any]:
    return token._asdict() | {"bytes": token.bytes.hex(" "), "span": list(token.span)}


def _pictures(text: str, tokens: Sequence[Token]) -> Iterator[Picture]:
    rows = [
        [str(place), str(one.id), label(one.piece), one.bytes.hex(" "), "{}-{}".format(*one.span), "unknown" if one.unknown else ""]
        for place, one in enumerate(tokens)
    ]
    if rows:
        yield partial(table, ["index", "id", "piece", "bytes", "characters", ""], rows)
    n_bytes, unknown = len(text.encode()), sum(one.unknown for one in tokens)
    said = f"{len(tokens)} tokens, {len(text)} characters, {n_bytes} bytes"
    if tokens:
        said += f": {n_bytes / len(tokens):.2f} bytes a token"
    if unknown:
        said += f"; {unknown} unknown: the tokenizer has no token for that text"
    yield partial(sentence, said)

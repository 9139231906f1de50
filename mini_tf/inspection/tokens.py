"""The tokens of a text: ids, strings, bytes and character spans. Needs no torch."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from mini_tf.data.tokenization.prompts import MASK, PLAIN_MASK
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.drawing.labels import label
from mini_tf.drawing.terminal import sentence, table
from mini_tf.inspection import COMMON, Picture, TextOptions, TokenizerViewSettings, View, ViewOutput
from mini_tf.system.numbers import counted


class Token(NamedTuple):
    """span: its characters [first, last) in the text; tokens that are parts of a character share its span.

    bytes: its bytes of the text; if the tokenizer changed the text (lower case, unknown token), those of its span.
    """

    id: int
    piece: str
    bytes: bytes
    span: tuple[int, int]
    unknown: bool


def tokens_of(tokenizer: Tokenizer, text: str) -> list[Token]:
    """Tokens of the text. No special tokens, except masks: their names in the text are plain text."""
    ids, spans = tokenizer.spans(text)
    vocabulary, pieces = tokenizer.vocabulary, tokenizer.pieces(ids)
    data, tokens = text.encode(), []
    starts = [0, *accumulate(len(character.encode()) for character in text)]  # byte offset of each character
    at = 0
    for id, piece, (first, last) in zip(map(int, ids), pieces, spans, strict=True):
        length = None if id in vocabulary.special_ids else _prefix_length(data[at : at + len(piece.encode())], piece)
        of_token = data[starts[first] : starts[last]] if length is None else data[at : at + length]
        at = starts[last] if length is None else at + length
        tokens.append(Token(id, piece, of_token, (int(first), int(last)), id == vocabulary.unk))
    return tokens


def _prefix_length(data: bytes, piece: str) -> int | None:
    """Length of the prefix that decodes to `piece` (invalid bytes as \\xNN); None if there is none."""
    lengths = range(1, len(data) + 1)
    return next((n for n in lengths if data[:n].decode("utf-8", errors="backslashreplace") == piece), None)


class Settings(TextOptions, TokenizerViewSettings):
    """List the tokens of a text: id, text, bytes and character offsets; of [MASK] as the run reads it."""

    PANEL = COMMON
    ALIASES = ("token", "tokenization", "tokenizer", "tokenize", "vocab", "vocabulary")
    EXAMPLES = ('minitf inspect tokens last "The file is closed."',)
    FILES = ()

    @property
    def reads_masks(self) -> bool:
        return any(MASK in text for text in self.given_texts)

    def view(self, tokenizer: Tokenizer, output: ViewOutput) -> View:
        """A table of tokens per text, with the numbers of tokens, characters and bytes."""
        tokenized = [(text, tokens_of(tokenizer, text)) for text in self.given_texts]
        pictures: list[Picture] = []
        for text, tokens in tokenized:
            pictures += [*([partial(sentence, "")] if pictures else []), *_pictures(text, tokens)]
        records = [
            {"text": text, "n_tokens": len(tokens), "n_bytes": len(text.encode()), "tokens": [*map(_record, tokens)]}
            for text, tokens in tokenized
        ]
        is_plain = any(MASK in text for text in self.given_texts) and not tokenizer.reads_masks
        notes = [PLAIN_MASK] if is_plain else []
        return View({"texts": records, "notes": [*tokenizer.notes, *notes]}, pictures, notes)


def _record(token: Token) -> dict[str, Any]:
    return token._asdict() | {"bytes": token.bytes.hex(" "), "span": list(token.span)}


def _pictures(text: str, tokens: Sequence[Token]) -> Iterator[Picture]:
    rows = [
        [
            str(index),
            str(token.id),
            label(token.piece),
            token.bytes.hex(" "),
            "{}-{}".format(*token.span),
            "unknown" if token.unknown else "",
        ]
        for index, token in enumerate(tokens)
    ]
    if rows:
        yield partial(table, ["index", "id", "token", "bytes", "characters", ""], rows)
    n_bytes, unknown = len(text.encode()), sum(token.unknown for token in tokens)
    summary = f"{len(tokens)} tokens, {len(text)} characters, {n_bytes} bytes"
    if tokens:
        summary += f": {n_bytes / len(tokens):.2f} bytes per token"
    if unknown:
        summary += f"; {counted(unknown, 'unknown token')}, whose text is lost"
    yield partial(sentence, summary)
